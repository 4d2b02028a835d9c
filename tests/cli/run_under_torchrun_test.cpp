// `mgplan run` and `mgplan launch` with CPU ranks as processes of torchrun's environment, without MPI.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "runtime/rendezvous/socket.hpp"
#include "tests/cli/say.hpp"
#include "tests/support/child_process.hpp"

namespace mgplan::cli::testing::run_under_torchrun_test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using tests::ChildProcess;

class RunUnderTorchrun : public ::testing::Test {
protected:
    RunUnderTorchrun() : plan("torchrun.json") {}

    void make_plan(const std::string& options) {
        const Said said = say("--model tiny-llama --precision fp32 --seq 32 --global-batch 8 " + options + " --save-plan " + plan.path());
        ASSERT_EQ(said.code, kDone) << said.err;
    }
    /// `less`: a variable that is left out.
    void start(int world, const std::string& words, const std::string& less = "") {
        start_with(std::vector<std::string>(static_cast<std::size_t>(world), words), less);
    }
    /// Each rank with words of its own.
    void start_with(const std::vector<std::string>& words, const std::string& less = "") {
        const int world = static_cast<int>(words.size());
        ranks_.clear();
        const int port = runtime::local_address(runtime::listen_at(runtime::resolve("127.0.0.1", 0).front())).port();
        for (int rank = 0; rank < world; ++rank) {
            std::map<std::string, std::string> variables{{"RANK", std::to_string(rank)},
                                                         {"WORLD_SIZE", std::to_string(world)},
                                                         {"LOCAL_RANK", std::to_string(rank)},
                                                         {"LOCAL_WORLD_SIZE", std::to_string(world)},
                                                         {"MASTER_ADDR", "127.0.0.1"},
                                                         {"MASTER_PORT", std::to_string(port)},
                                                         {"MGPLAN_SECRET", "a secret of this test"}};
            variables.erase(less);
            ranks_.push_back(std::make_unique<ChildProcess>(
                MGPLAN_PROGRAM, split(command_ + plan.path() + " " + words[static_cast<std::size_t>(rank)], ' '), variables));
        }
    }
    ChildProcess& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }

    TempFile plan;
    std::string command_ = "run ";

private:
    std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

class RunUnderTorchrunOfLayouts : public RunUnderTorchrun, public ::testing::WithParamInterface<std::string> {};

TEST_P(RunUnderTorchrunOfLayouts, TrainsAsThreadsDoToTheBitAndHoldsAndSendsAsPredicted) {
    make_plan("--world 4 --micro-batch 1 " + GetParam());
    start(4, "--steps 3 --format json");
    for (int number = 0; number < 4; ++number) ASSERT_EQ(rank(number).code(), kDone) << rank(number).err();
    const json processes = json::parse(rank(0).out()), threads = json::parse(say("run " + plan.path() + " --steps 3 --format json").out);
    EXPECT_EQ(processes["transport"], "processes over TCP");
    EXPECT_EQ(processes["as_predicted"], true) << rank(0).out();
    ASSERT_EQ(processes["steps"].size(), 3U);
    for (std::size_t step = 0; step < 3; ++step) {
        for (const char* value : {"loss", "grad_norm"}) EXPECT_EQ(processes["steps"][step][value], threads["steps"][step][value]) << value;
    }
    ASSERT_EQ(processes["ranks"].size(), 4U);
    for (std::size_t number = 0; number < 4; ++number) {
        for (const char* value : {"measured", "graph_pieces", "graph_nodes"})
            EXPECT_EQ(processes["ranks"][number][value], threads["ranks"][number][value]) << number << ' ' << value;
    }
    for (const int number : {1, 2, 3}) EXPECT_EQ(rank(number).out(), "") << "rank 0 reports";
}

INSTANTIATE_TEST_SUITE_P(Layouts, RunUnderTorchrunOfLayouts,
                         ::testing::Values("--tp 2 --pp 2", "--tp 1 --cp 2", "--pp 4", "--tp 4", "--tp 2 --pp 2 --cuda-graphs layer"),
                         [](const auto& test) { return "Of" + std::to_string(test.index); });

TEST_F(RunUnderTorchrun, AKilledRankEndsAllWithinSeconds) {
    make_plan("--world 4 --tp 2 --pp 2 --micro-batch 1");
    start(4, "--steps 1000000");
    ASSERT_TRUE(rank(0).says("step 3 of"));
    const auto begin = std::chrono::steady_clock::now();
    rank(2).signal(SIGKILL);
    for (const int number : {0, 1, 3}) EXPECT_EQ(rank(number).code(10s), kRunFailed) << rank(number).err();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    EXPECT_THAT(rank(0).err(), HasSubstr("rank 2 (127.0.0.1:"));
    EXPECT_THAT(rank(0).err(), HasSubstr("ended without a word"));
}

TEST_F(RunUnderTorchrun, ToldAtTheStartThatRanksWereStartedOtherwise) {
    make_plan("--world 2 --tp 2 --micro-batch 1");
    const TempFile data("other_data.txt", std::string(5000, 'x'));
    const std::vector<std::pair<std::string, std::string>> cases{
        {"--steps 6", "rank 1 was started with --steps = 6 and rank 0 with --steps = 5; start all ranks with the same options and files"},
        {"--steps 5 --lr 0.5", "rank 1 was started with training options of checksum "},
        {"--steps 5 --data " + data.path(), "rank 1 was started with data of checksum "}};
    for (const auto& [words, message] : cases) {
        start_with({"--steps 5", words});
        for (const int number : {0, 1}) {
            EXPECT_EQ(rank(number).code(), kBadInput) << rank(number).err();
            EXPECT_THAT(rank(number).err(), HasSubstr(message));
            EXPECT_THAT(rank(number).err(), ::testing::Not(HasSubstr("step 1 of")));
        }
    }
}

TEST_F(RunUnderTorchrun, SaysWhatItsVariablesLack) {
    make_plan("--world 2 --tp 2");
    start(2, "--steps 1", "MGPLAN_SECRET");
    for (const int number : {0, 1}) {
        EXPECT_EQ(rank(number).code(), kBadInput);
        EXPECT_THAT(rank(number).err(), AllOf(HasSubstr("MGPLAN_SECRET is not set"), HasSubstr("unset both, then start mpirun -n 2")));
    }
}

TEST_F(RunUnderTorchrun, CalibratesInThePlansGroups) {
    make_plan("--world 2 --tp 2 --micro-batch 1");
    const TempFile cluster("torchrun_cluster.json");
    command_ = "calibrate --plan ";
    start(2, "--precision fp32 --seconds 0.00001 --most-bytes 64KiB --output " + cluster.path());
    for (const int number : {0, 1}) ASSERT_EQ(rank(number).code(), kDone) << rank(number).err();
    const json calibration = json::parse(cluster.text())["calibration"];
    EXPECT_EQ(calibration["transport"], "TCP");
    EXPECT_EQ(calibration["complete"], true);
    EXPECT_EQ(calibration["collectives"].size(), 10U);  // five operations of two sizes
    for (const auto& each : calibration["collectives"]) EXPECT_EQ(each["nodes"], 1);
}

TEST_F(RunUnderTorchrun, ATorchrunOfOneProcessIsAllRanks) {
    make_plan("--world 1");
    start(1, "--steps 1 --format json", "MGPLAN_SECRET");
    ASSERT_EQ(rank(0).code(), kDone) << rank(0).err();
    EXPECT_EQ(json::parse(rank(0).out())["as_predicted"], true);
}

/// torchrun as far as a launch uses it: its own options, and a process for each rank with torchrun's variables.
constexpr const char* kTorchrun = R"(#!/usr/bin/env bash
while [[ $1 == --* ]]; do
    case $1 in
        --nproc_per_node=*) count=${1#*=} ;;
        --master_addr=*) export MASTER_ADDR=${1#*=} ;;
        --master_port=*) export MASTER_PORT=${1#*=} ;;
    esac
    shift
done
processes=()
for ((rank = 0; rank < count; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$count LOCAL_WORLD_SIZE=$count TORCHELASTIC_RUN_ID=none "$@" &
    processes+=($!)
done
code=0
for process in "${processes[@]}"; do wait "$process" || code=$?; done
exit $code
)";

TEST_F(RunUnderTorchrun, LaunchTrainsAPlanOfCpuRanks) {
    make_plan("--world 2 --tp 2 --micro-batch 1");
    const std::filesystem::path folder = ::testing::TempDir() + fmt::format("mgplan_torchrun_{}", ::getpid());
    std::filesystem::create_directories(folder / "bin");
    std::ofstream(folder / "bin" / "torchrun") << kTorchrun;
    std::filesystem::permissions(folder / "bin" / "torchrun", std::filesystem::perms::owner_all);
    {
        ChildProcess launched(MGPLAN_PROGRAM, split("launch " + plan.path() + " --via torchrun --device cpu --steps 2 --format json", ' '),
                              {{"PATH", (folder / "bin").string() + ":" + std::getenv("PATH")}, {"XDG_STATE_HOME", folder / "state"}});
        ASSERT_EQ(launched.code(), kDone) << launched.err();
        const json report = json::parse(launched.out());
        EXPECT_EQ(report["transport"], "processes over TCP");
        EXPECT_EQ(report["as_predicted"], true);
        EXPECT_EQ(report["steps"].size(), 2U);
    }
    std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mgplan::cli::testing::run_under_torchrun_test
