// `mgplan launch --via mpirun` where mpirun does not end when it is asked to: a stand-in of that name, first on PATH.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"
#include "tests/support/child_process.hpp"

namespace mgplan::cli::testing::stubborn_engine_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

class StubbornEngine : public ::testing::Test {
protected:
    /// The stand-in starts ranks as Open MPI does, each in a group of its own. Neither it nor what the ranks run heeds SIGTERM, SIGINT or
    /// SIGHUP, and it goes on where a rank has failed.
    void begin() {
        EXPECT_EQ(say("--model tiny-llama --world 2 --global-batch 2 --save-plan " + plan).code, kDone);
        std::filesystem::create_directory(folder + "/bin");
        const std::string mpirun = folder + "/bin/mpirun";
        std::ofstream(mpirun) << "#!/bin/bash\ntrap '' TERM INT HUP\nfolder='" + folder + "'\n" + R"(
words=()
while [[ $2 != rank ]]; do shift; done
while [[ $1 != -- ]]; do words+=("$1"); shift; done  # what stands behind is the training
export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2
for rank in 0 1; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_LOCAL_RANK=$rank setsid "${words[@]}" -- \
        bash -c 'trap "" TERM INT HUP; echo $$ >"$1.part"; mv "$1.part" "$1"; exec sleep 600' rank "$folder/rank-$rank" &
done
echo $$ >"$folder/engine"
for ((second = 0; second < 600; ++second)); do wait; sleep 1; done  # as long as a rank, should the test leave it behind
)";
        std::filesystem::permissions(mpirun, std::filesystem::perms::owner_all);
        launch.emplace(MGPLAN_PROGRAM, std::vector<std::string>{"launch", plan, "--via", "mpirun", "--steps", "1"},
                       std::map<std::string, std::string>{{"PATH", folder + "/bin:" + std::getenv("PATH")}, {"XDG_STATE_HOME", folder}});
        bool all = false;  // asked once more, a rank that becomes sleep at that instant has no command line
        for (int turn = 0; turn < 12'000 && !all; ++turn) {
            std::this_thread::sleep_for(5ms);
            all = runs("engine") && runs("rank-0") && runs("rank-1");
        }
        ASSERT_TRUE(all) << launch->err();
    }
    [[nodiscard]] pid_t process(const std::string& name) const {
        std::ifstream file(folder + "/" + name);
        pid_t number = 0;
        return file >> number ? number : 0;
    }
    /// What waits for its parent to notice its end has no command line.
    [[nodiscard]] bool runs(const std::string& name) const {
        const pid_t number = process(name);
        return number > 0 && std::ifstream(fmt::format("/proc/{}/cmdline", number)).get() != EOF;
    }
    void expect_nothing_left() const {
        const auto until = Clock::now() + 10s;
        while ((runs("engine") || runs("rank-0") || runs("rank-1")) && Clock::now() < until) std::this_thread::sleep_for(5ms);
        for (const char* name : {"engine", "rank-0", "rank-1"}) EXPECT_FALSE(runs(name)) << name;
    }
    [[nodiscard]] nlohmann::json record() const {
        for (const auto& entry : std::filesystem::directory_iterator(folder + "/mgplan/jobs")) {
            std::ifstream file(entry.path() / "record.json");
            return nlohmann::json::parse(file);
        }
        return {};
    }

    const tests::TemporaryFolder temporary;
    const std::string folder = temporary.path();
    const std::string plan = folder + "/plan.json";
    std::optional<tests::ChildProcess> launch;
};

TEST_F(StubbornEngine, IsKilledWhenTheLauncherIsAskedToStop) {
    ASSERT_NO_FATAL_FAILURE(begin());
    const auto asked = Clock::now();
    launch->signal(SIGTERM);
    EXPECT_EQ(launch->code(), kRunFailed) << launch->err();
    EXPECT_LT(Clock::now() - asked, 10s);
    EXPECT_THAT(launch->err(), HasSubstr("asked to stop: ends the job"));
    expect_nothing_left();
    EXPECT_EQ(record()["state"], "cancelled");
}

TEST_F(StubbornEngine, IsKilledWhenARankHasFailed) {
    ASSERT_NO_FATAL_FAILURE(begin());
    const auto killed = Clock::now();
    ::kill(process("rank-1"), SIGKILL);
    EXPECT_EQ(launch->code(), kRunFailed) << launch->err();
    EXPECT_LT(Clock::now() - killed, 12s);
    EXPECT_THAT(launch->err(), AllOf(HasSubstr("rank 1 on "), HasSubstr("was killed by signal 9")));
    expect_nothing_left();
    EXPECT_EQ(record()["state"], "failed");
    EXPECT_EQ(record()["failure"]["rank"], 1);
}

}  // namespace
}  // namespace mgplan::cli::testing::stubborn_engine_test
