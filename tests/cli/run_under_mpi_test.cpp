// `mgplan run` with processes as ranks, under mpirun.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"
#include "tests/support/indexed_dataset_writer.hpp"

namespace mgplan::cli::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// One mpirun of the program, or with 0 ranks the program alone; its output in files.
class Job {
public:
    Job(int ranks, const std::vector<std::string>& words, const std::map<std::string, std::string>& variables = {})
        : out_("job.out"), err_("job.err") {
        std::vector<std::string> all{MGPLAN_MPIRUN, "--oversubscribe", "-n", std::to_string(ranks), "--timeout", "120"};
        if (ranks == 0) all.clear();
        all.emplace_back(MGPLAN_PROGRAM);
        all.insert(all.end(), words.begin(), words.end());
        process_ = ::fork();
        if (process_ != 0) return;
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
        ::dup2(::open(out_.path().c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), 1);
        ::dup2(::open(err_.path().c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600), 2);
        std::vector<char*> arguments;
        for (auto& word : all) arguments.push_back(word.data());
        arguments.push_back(nullptr);
        ::execv(arguments[0], arguments.data());
        ::_exit(127);
    }
    ~Job() {
        if (!ended_) {
            ::kill(process_, SIGKILL);
            ::waitpid(process_, nullptr, 0);
        }
    }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// The process of a rank, once it is there: a child of this mpirun that knows its rank.
    [[nodiscard]] pid_t process_of(int rank) const {
        const std::string wanted = '\0' + fmt::format("OMPI_COMM_WORLD_RANK={}", rank) + '\0';
        for (int turn = 0; turn < 2000; ++turn) {
            for (const auto& entry :
                 std::filesystem::directory_iterator("/proc", std::filesystem::directory_options::skip_permission_denied)) {
                const auto number = parse_integer(entry.path().filename().string());
                if (!number || parent(entry.path()) != process_) continue;
                const std::string environment = '\0' + text_of(entry.path() / "environ");
                if (environment.find(wanted) != std::string::npos) return static_cast<pid_t>(*number);
            }
            std::this_thread::sleep_for(5ms);
        }
        return -1;
    }
    void wait_for(const std::string& part) const {
        const auto until = Clock::now() + 60s;
        while (err_.text().find(part) == std::string::npos && Clock::now() < until) std::this_thread::sleep_for(10ms);
    }
    /// Waits for the end; 128 + the signal that killed it.
    int code() {
        int status = 0;
        ::waitpid(process_, &status, 0);
        ended_ = true;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    [[nodiscard]] std::string out() const { return out_.text(); }
    [[nodiscard]] std::string err() const { return err_.text(); }

private:
    static std::string text_of(const std::filesystem::path& path) {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    static pid_t parent(const std::filesystem::path& process) {
        const std::string stat = text_of(process / "stat");  // "12 (name) S 11 …"
        const auto name_end = stat.rfind(')');
        return name_end == std::string::npos ? -1 : static_cast<pid_t>(std::atoi(stat.c_str() + name_end + 4));
    }

    TempFile out_, err_;
    pid_t process_ = -1;
    bool ended_ = false;
};

class RunUnderMpi : public ::testing::Test {
protected:
    explicit RunUnderMpi() : plan("mpi.json") {}
    /// A plan of tiny-llama.
    void make_plan(const std::string& options) {
        const Said said = say("--model tiny-llama " + options + " --save-plan " + plan.path());
        ASSERT_EQ(said.code, kDone) << said.err;
    }
    TempFile plan;
    const std::string text = std::string(MGPLAN_TEST_DATA) + "/../LICENSE";
};

TEST_F(RunUnderMpi, TrainsAndReportsFromRankZeroAlone) {
    make_plan("--world 8");
    Job job(8, {"run", plan.path(), "--device", "cpu", "--steps", "5", "--data", text, "--format", "json"});
    ASSERT_EQ(job.code(), kDone) << job.err();
    const auto json = nlohmann::json::parse(job.out());
    ASSERT_EQ(json["ranks"].size(), 8U);
    EXPECT_TRUE(json["as_predicted"]) << job.out();
    EXPECT_LT(json["steps"][4]["loss"], json["steps"][0]["loss"].get<double>() - 0.3);
    EXPECT_EQ(json["transport"], "MPI");
    // The same model from threads, up to the order of sums in bf16.
    const Said threads = say("run " + plan.path() + " --steps 5 --format json --data " + text);
    const auto other = nlohmann::json::parse(threads.out);
    for (std::size_t i = 0; i < 5; ++i)
        EXPECT_NEAR(json["steps"][i]["loss"].get<double>() / other["steps"][i]["loss"].get<double>(), 1, 1e-3);
    for (std::size_t rank = 0; rank < 8; ++rank) EXPECT_EQ(json["ranks"][rank]["measured"], other["ranks"][rank]["measured"]);
    EXPECT_EQ(json["collectives"], other["collectives"]);
}

TEST_F(RunUnderMpi, RefusesAPlanForAnotherWorldOnce) {
    make_plan("--world 4");
    Job job(2, {"run", plan.path()});
    EXPECT_EQ(job.code(), kBadInput);
    const std::string message = "mgplan: the plan is for 4 ranks, and Open MPI started 2; start 4 (mpirun -n 4";
    const auto first = job.err().find(message);
    EXPECT_NE(first, std::string::npos) << job.err();
    EXPECT_EQ(job.err().find(message, first + 1), std::string::npos) << job.err();
    EXPECT_EQ(job.out(), "");
}

TEST_F(RunUnderMpi, IdsOutsideTheVocabularyAreBadInput) {
    make_plan("--world 2 --global-batch 4");
    TempFile bin("mpi_ids.bin", "x"), idx("mpi_ids.idx", "x");
    tests::IndexedFiles<std::int32_t>{4, {std::vector<std::int32_t>(1000, 512)}, {}}.write(bin.path().substr(0, bin.path().size() - 4));
    Job job(2, {"run", plan.path(), "--data", bin.path()});
    EXPECT_EQ(job.code(), kBadInput);
    EXPECT_THAT(job.err(), HasSubstr("is 512, outside the vocabulary of 512"));
}

TEST_F(RunUnderMpi, ALossThatIsNoNumberIsSaidOnceAndTheStepsBeforeAreReported) {
    make_plan("--world 2 --global-batch 4");
    Job job(2, {"run", plan.path(), "--steps", "5", "--lr", "1e30", "--format", "json"});
    EXPECT_EQ(job.code(), kRunFailed);
    const auto first = job.err().find("mgplan: step 2, rank ");
    EXPECT_NE(first, std::string::npos) << job.err();
    EXPECT_EQ(job.err().find("mgplan: step 2, rank ", first + 1), std::string::npos) << job.err();
    const auto json = nlohmann::json::parse(job.out());
    EXPECT_EQ(json["steps"].size(), 2U);
    EXPECT_EQ(json["ranks"].size(), 2U);
    EXPECT_TRUE(json["as_predicted"]);
}

TEST_F(RunUnderMpi, RanksThatNoLauncherStartedAreBadInput) {
    make_plan("--world 8");
    Job by_shell(0, {"run", plan.path()}, {{"RANK", "0"}, {"WORLD_SIZE", "8"}});
    EXPECT_EQ(by_shell.code(), kBadInput);
    EXPECT_THAT(by_shell.err(), AllOf(HasSubstr("mgplan: by the variables RANK and WORLD_SIZE there are 8 ranks, and MPI connects 1; "),
                                      HasSubstr("unset both, then start mpirun -n 8")));
}

TEST_F(RunUnderMpi, ARankKilledAtAnyMomentStopsTheOthersWhichSayWhereTheyWere) {
    make_plan("--world 4 --tp 2 --pp 2 --global-batch 8");
    std::mt19937 random(3);
    for (int victim = 0; victim < 4; ++victim) {
        Job job(4, {"run", plan.path(), "--steps", "1000000", "--log-interval", "1"});
        const pid_t process = job.process_of(victim);
        ASSERT_GT(process, 0);
        if (victim % 2 == 0) job.wait_for("mgplan: step 1 of");
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
        const auto begin = Clock::now();
        ::kill(process, SIGKILL);
        const int code = job.code();
        EXPECT_LT(Clock::now() - begin, 5s);
        EXPECT_NE(code, 0);
        EXPECT_THAT(job.err(), HasSubstr("signal 9")) << victim;
        if (victim % 2 == 0) {  // the others were training
            EXPECT_THAT(job.err(), AllOf(HasSubstr("mgplan: rank "), HasSubstr(" in group "), HasSubstr("another rank may have died")));
        }
        EXPECT_EQ(job.out(), "");
    }
}

TEST_F(RunUnderMpi, ARankThatIsHeldUpIsNoticedAtTheDeadline) {
    make_plan("--world 2 --tp 2 --global-batch 2");
    Job job(2, {"run", plan.path(), "--steps", "1000000", "--distributed-timeout-minutes", "0.05"});
    const pid_t process = job.process_of(1);
    ASSERT_GT(process, 0);
    job.wait_for("mgplan: step 1 of");
    ::kill(process, SIGSTOP);
    const auto begin = Clock::now();
    // mpirun's SIGTERM does not wake a stopped process, its SIGKILL does.
    EXPECT_EQ(job.code(), kRunFailed) << job.err();
    EXPECT_LT(Clock::now() - begin, 15s);
    EXPECT_THAT(job.err(), AllOf(HasSubstr("mgplan: rank 0, "), HasSubstr("in group tp (ranks 0, 1)"),
                                 HasSubstr("no progress within the deadline of 3000 ms")));
}

}  // namespace
}  // namespace mgplan::cli::testing
