// `mgplan run` with processes as ranks, under mpirun.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"
#include "tests/support/data_folder.hpp"
#include "tests/support/indexed_dataset_writer.hpp"
#include "tests/support/mpirun_job.hpp"

namespace mgplan::cli::testing::run_under_mpi_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// One mpirun of the program, or with 0 ranks the program alone.
class Job : public tests::MpirunJob {
public:
    Job(int ranks, std::vector<std::string> words, std::map<std::string, std::string> variables = {})
        : MpirunJob(MGPLAN_MPIRUN, ranks, MGPLAN_PROGRAM, std::move(words), std::move(variables)) {}
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
    const std::string text = tests::data_folder() + "/../LICENSE";
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

TEST_F(RunUnderMpi, ToldAtTheStartThatRanksWereStartedOtherwise) {
    make_plan("--world 2 --tp 2 --micro-batch 1 --precision fp32 --seq 32 --global-batch 8");
    const TempFile data("other_data.txt", std::string(5000, 'x'));
    const std::vector<std::pair<std::string, std::string>> cases{
        {"--steps 6", "rank 1 was started with --steps = 6 and rank 0 with --steps = 5; start all ranks with the same options and files"},
        {"--steps 5 --lr 0.5", "rank 1 was started with training options of checksum "},
        {"--steps 5 --data " + data.path(), "rank 1 was started with data of checksum "}};
    for (const auto& [words, message] : cases) {
        const std::string command =
            fmt::format("if ((OMPI_COMM_WORLD_RANK)); then exec {0} run {1} {2}; else exec {0} run {1} --steps 5; fi", MGPLAN_PROGRAM,
                        plan.path(), words);
        tests::MpirunJob job(MGPLAN_MPIRUN, 2, "/bin/bash", {"-c", command});
        EXPECT_EQ(job.code(), kBadInput) << job.err();
        EXPECT_THAT(job.err(), HasSubstr(message));
        EXPECT_THAT(job.err(), ::testing::Not(HasSubstr("step 1 of")));
    }
}

TEST_F(RunUnderMpi, SavesWhatThreadsGoOnFromAndTheOtherWayRound) {
    const tests::TemporaryFolder folder;
    make_plan("--world 4 --tp 2 --pp 2 --precision fp32 --global-batch 4");
    const std::vector<std::string> words{"run", plan.path(), "--checkpoint", folder.path(), "--resume", "--format", "json", "--steps"};
    const auto with_steps = [&](const std::string& steps) {
        auto all = words;
        all.push_back(steps);
        return all;
    };
    const auto whole = nlohmann::json::parse(say("run " + plan.path() + " --steps 3 --format json").out);
    Job first(4, with_steps("1"));
    ASSERT_EQ(first.code(), kDone) << first.err();
    EXPECT_TRUE(nlohmann::json::parse(first.out())["as_predicted"]);
    const Said threads = say(fmt::format("{} 2", fmt::join(words, " ")));
    ASSERT_EQ(threads.code, kDone) << threads.err;
    Job last(4, with_steps("3"));
    ASSERT_EQ(last.code(), kDone) << last.err();
    const auto second = nlohmann::json::parse(threads.out), third = nlohmann::json::parse(last.out());
    EXPECT_TRUE(third["as_predicted"]);
    EXPECT_NEAR(second["steps"][0]["loss"].get<double>() / whole["steps"][1]["loss"].get<double>(), 1, 1e-6);
    EXPECT_NEAR(third["steps"][0]["loss"].get<double>() / whole["steps"][2]["loss"].get<double>(), 1, 1e-6);
}

TEST_F(RunUnderMpi, ASecondJobInTheSameFolderIsRefusedAndAKilledOneBlocksNobody) {
    const tests::TemporaryFolder folder;
    make_plan("--world 2 --global-batch 2");
    const auto words = [&](const char* steps) {
        return std::vector<std::string>{"run", plan.path(), "--checkpoint", folder.path(), "--resume", "--steps", steps};
    };
    Job first(2, words("1000000"));
    const pid_t holder = first.process_of(0);
    ASSERT_GT(holder, 0);
    EXPECT_TRUE(first.says("mgplan: step 10 of"));
    Job second(2, words("1"));
    EXPECT_EQ(second.code(), kBadInput);
    const std::string message = fmt::format("mgplan: checkpoint folder {} is in use by another job (process {} on ", folder.path(), holder);
    const auto at = second.err().find(message);
    EXPECT_NE(at, std::string::npos) << second.err();
    EXPECT_EQ(second.err().find(message, at + 1), std::string::npos) << second.err();
    ::kill(holder, SIGKILL);
    EXPECT_NE(first.code(), 0);
    Job third(2, words("1"));
    EXPECT_EQ(third.code(), kDone) << third.err();
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
    EXPECT_THAT(by_shell.err(), AllOf(HasSubstr("RANK = 0 and WORLD_SIZE = 8 say"), HasSubstr("no MPI connects them"),
                                      HasSubstr("start them with mpirun -n 8"), HasSubstr("or unset both")));
}

TEST_F(RunUnderMpi, ARankKilledAtAnyMomentStopsTheOthersWhichSayWhereTheyWere) {
    make_plan("--world 4 --tp 2 --pp 2 --global-batch 8");
    std::mt19937 random(3);
    for (int victim = 0; victim < 4; ++victim) {
        Job job(4, {"run", plan.path(), "--steps", "1000000", "--log-interval", "1"});
        const pid_t process = job.process_of(victim);
        ASSERT_GT(process, 0);
        if (victim % 2 == 0) {
            EXPECT_TRUE(job.says("mgplan: step 1 of"));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
        const auto begin = Clock::now();
        ::kill(process, SIGKILL);
        // mpirun's own words are not looked at: where it hears of a rank's end before its signal, it names no signal.
        EXPECT_NE(job.code(), 0);
        EXPECT_LT(job.ranks_ended() - begin, 5s);
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
    EXPECT_TRUE(job.says("mgplan: step 1 of"));
    ::kill(process, SIGSTOP);
    const auto begin = Clock::now();
    // mpirun's SIGTERM does not wake a stopped process, its SIGKILL does.
    EXPECT_EQ(job.code(), kRunFailed) << job.err();
    EXPECT_LT(Clock::now() - begin, 15s);
    EXPECT_THAT(job.err(), AllOf(HasSubstr("mgplan: rank 0, "), HasSubstr("in group tp (ranks 0, 1)"),
                                 HasSubstr("no progress within the deadline of 3000 ms")));
}

}  // namespace
}  // namespace mgplan::cli::testing::run_under_mpi_test
