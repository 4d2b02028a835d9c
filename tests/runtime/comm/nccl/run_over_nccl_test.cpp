// Training with processes as ranks over NCCL, which is faked as CUDA is: the code between is the one that runs on GPUs.
#include <filesystem>
#include <memory>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/text/text.hpp"
#include "tests/runtime/comm/nccl/small_nccl_run.hpp"
#include "tests/support/child_process.hpp"

namespace mgplan::tests::run_over_nccl_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr int kMostRanks = 4;

class RunOverNccl : public ::testing::Test {
protected:
    RunOverNccl() : folder_(::testing::TempDir() + fmt::format("mgplan_nccl_{}_{}", ::getpid(), count_++)) {
        std::filesystem::create_directories(folder_);
        for (int rank = 0; rank < kMostRanks; ++rank) variables_.push_back({});
    }
    ~RunOverNccl() override {
        ranks_.clear();
        std::filesystem::remove_all(folder_);
    }

    /// `scopes`: of CUDA graphs or "none", with an arena.
    void start(const std::string& layout, const std::string& fault = "none", const std::string& scopes = "", int size = 2) {
        for (int rank = 0; rank < size; ++rank) {
            std::map<std::string, std::string> variables{
                {"RANK", std::to_string(rank)},          {"WORLD_SIZE", std::to_string(size)},         {"LOCAL_RANK", std::to_string(rank)},
                {"MGPLAN_JOB_FOLDER", folder_ + "/job"}, {"LD_LIBRARY_PATH", MGPLAN_FAKE_NCCL_FOLDER}, {"FAKE_NCCL_FOLDER", folder_}};
            variables.merge(variables_[static_cast<std::size_t>(rank)]);
            ranks_.push_back(std::make_unique<ChildProcess>(MGPLAN_NCCL_RANK_PROGRAM, std::vector{layout, fault, scopes}, variables));
        }
    }
    void end() { ranks_.clear(); }
    ChildProcess& rank(int number) { return *ranks_[static_cast<std::size_t>(number)]; }

    std::vector<std::map<std::string, std::string>> variables_;

private:
    static inline int count_ = 0;
    std::string folder_;
    std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

/// What a calibration prints behind its progress.
nlohmann::json printed_last(const ChildProcess& rank) {
    const auto lines = split(rank.out(), '\n');  // the last one is empty
    return nlohmann::json::parse(lines.size() < 2 ? std::string() : lines[lines.size() - 2]);
}

class OpenSends : public RunOverNccl, public ::testing::WithParamInterface<int> {};

// The first message between two ranks of a communicator connects them, which holds the host until its receiver comes.
TEST_P(OpenSends, OfMembersThatSendBeforeTheyReceiveEndFromTheFirstMessageOn) {
    start("open_sends", "none", "", GetParam());
    for (int number = 0; number < GetParam(); ++number) {
        EXPECT_EQ(rank(number).code(), 0) << rank(number).err();
        EXPECT_EQ(rank(number).out(), "as sent\n");
    }
}

INSTANTIATE_TEST_SUITE_P(Ranks, OpenSends, ::testing::Values(2, 3, kMostRanks));

TEST_F(RunOverNccl, RefusesOneQueueOfACardWhereSendsStandBehindEachOther) {
    for (auto& variables : variables_) variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1";
    start("vpp");
    for (const int number : {0, 1}) {
        EXPECT_EQ(rank(number).code(20s), 2);
        EXPECT_THAT(rank(number).err(), HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS = 1: pipeline ranks of this plan leave up to 3 sends open"));
    }
}

TEST_F(RunOverNccl, TakesOneQueueOfACardWhereASendIsOpenAtATime) {
    for (auto& variables : variables_) variables["CUDA_DEVICE_MAX_CONNECTIONS"] = "1";
    start("pp");
    for (const int number : {0, 1}) EXPECT_EQ(rank(number).code(20s), 0) << rank(number).err();
}

class RunOverNcclOfLayouts : public RunOverNccl, public ::testing::WithParamInterface<std::string> {};

TEST_P(RunOverNcclOfLayouts, TrainsAsThreadsDoAndHoldsAndSendsAsPredicted) {
    start(GetParam());
    for (const int number : {0, 1}) ASSERT_EQ(rank(number).code(), 0) << rank(number).err();
    const auto lines = split(rank(0).out(), '\n');
    const auto expected = runtime::run_in_process(small_nccl_run(GetParam()));
    ASSERT_EQ(lines.size(), expected.steps.size() + 3) << rank(0).out();
    for (std::size_t step = 0; step < expected.steps.size(); ++step)
        EXPECT_NEAR(std::stod(lines[step]), expected.steps[step].loss, 1e-11) << "step " << step + 1;
    EXPECT_EQ(lines[expected.steps.size()], "2 ranks as predicted");
    EXPECT_EQ(rank(1).out(), "") << "rank 0 reports";
    // Marks on the device time the ops of every second step, and all of its ops.
    const auto timed = printed_last(rank(0));
    ASSERT_EQ(timed["steps"].size(), 2U);
    EXPECT_EQ(timed["steps"][0][0], false);
    EXPECT_EQ(timed["steps"][1][0], true);
    const std::map<std::string, std::int64_t> ran = [&] {
        std::map<std::string, std::int64_t> counts;  // of the CPU's two steps, halved
        for (const auto& op : expected.ranks.front().ops) counts[op.op] = op.count / 2;
        return counts;
    }();
    double seconds = 0;
    for (const auto& op : timed["ops"]) {
        EXPECT_EQ(op[1], ran.at(op[0])) << op[0];
        EXPECT_GE(op[2], 0) << op[0];
        seconds += op[2].get<double>();
    }
    EXPECT_EQ(timed["ops"].size(), ran.size());
    EXPECT_GT(seconds, 0);
    EXPECT_LE(seconds, timed["steps"][1][1]);
}

INSTANTIATE_TEST_SUITE_P(Layouts, RunOverNcclOfLayouts,
                         ::testing::Values("tp", "pp", "vpp", "dp", "ep", "etp", "tpfp8", "epfp8", "tpdelayedfp8", "tpblocksfp8",
                                           "epdelayedfp8", "dpstoredfp8", "dpdelayedstoredfp8"),
                         [](const auto& test) { return test.param; });

struct Graphs {
    std::string layout, scopes;
    int graphs, operations;  ///< of rank 0; operations that go into the graphs
};

/// Forwards and backwards of two layers.
constexpr int kOfLayers = 2 * 2;

class RunOverNcclWithGraphs : public RunOverNccl, public ::testing::WithParamInterface<Graphs> {
protected:
    /// Rank 0's lines.
    std::vector<std::string> run_with(const std::string& scopes) {
        start(GetParam().layout, "none", scopes);
        for (const int number : {0, 1}) EXPECT_EQ(rank(number).code(), 0) << rank(number).err();
        auto lines = split(rank(0).out(), '\n');
        end();
        return lines;
    }
};

// The fake CUDA ends the program for what a stream capture forbids: an event asked for that was recorded in one, or any asked for by the
// thread that captures; memory allocated; a stream left unjoined. The fake NCCL ends no communicator before its graphs are gone.
TEST_P(RunOverNcclWithGraphs, CapturesCollectivesWithTheRestAndGivesTheBitsOfAnEagerRun) {
    const auto eager = run_with("none"), graphs = run_with(GetParam().scopes);
    ASSERT_EQ(eager.size(), 9U);
    ASSERT_EQ(graphs.size(), 9U);
    for (std::size_t step = 0; step < 4; ++step) EXPECT_EQ(graphs[step], eager[step]) << "step " << step + 1;
    EXPECT_EQ(graphs[4], "2 ranks as predicted") << "what was sent is counted in replays too";
    EXPECT_EQ(graphs[5], fmt::format("{} graphs", GetParam().graphs));
    EXPECT_EQ(graphs[6], fmt::format("{} pieces", GetParam().graphs)) << "no collective cuts a graph";
    EXPECT_EQ(graphs[7], fmt::format("{} operations captured", GetParam().operations)) << "and no replay calls NCCL";
    EXPECT_EQ(eager[7], "0 operations captured");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RunOverNcclWithGraphs,
    ::testing::Values(
        // Attention and MLP gather and scatter the sequence, forward and backward, and gather it again for weights' gradients
        // (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2).
        Graphs{"tp", "layer", kOfLayers, 2 * 10},
        // Both inputs and both gradients that are gathered in fp8 have one scale.
        Graphs{"tpfp8", "layer", kOfLayers, 2 * (10 + 4)},
        // Under delayed scaling the maxima are taken behind all passes.
        Graphs{"tpdelayedfp8", "layer", kOfLayers, 2 * 10},
        // Blocks are a rank's own.
        Graphs{"tpblocksfp8", "layer", kOfLayers, 2 * 10},
        // Forward, keys and values take the one hop of a ring of two; backward they take it again, and their gradients two hops home.
        // A hop is a send and a receive, issued as one.
        Graphs{"cp", "layer", kOfLayers, 2 * (1 + 3)},
        // The counts of rows for each expert.
        Graphs{"ep", "attn,moe_router,moe_preprocess", kOfLayers, 2}, Graphs{"epfp8", "attn,moe_router,moe_preprocess", kOfLayers, 2},
        // Four microbatches of it, with the embedding's scatter and gather, and of the loss three all-reduces, its gather, and the
        // scatter and the gather of the backward.
        Graphs{"tp", "full_iteration", 1, 4 * (2 * 10 + 2 + 3 + 3)},
        // Activations of each of four microbatches leave and gradients come.
        Graphs{"pp", "full_iteration", 1, 4 * 2},
        // One bucket, whose parameters are gathered and whose gradients are reduced.
        Graphs{"dp", "full_iteration", 1, 2}),
    [](const auto& test) { return test.param.layout + (test.param.scopes == "full_iteration" ? "_full_iteration" : ""); });

TEST_F(RunOverNccl, AReplayThatHangsEndsAllAtTheDeadlineWithGraphAndOperations) {
    start("tp", "hang_in_replay", "layer");
    for (const int number : {0, 1}) {
        EXPECT_EQ(rank(number).code(10s), 4);
        EXPECT_THAT(
            rank(number).err(),
            ContainsRegex(
                "the (forward|backward) graph of layer [01] in slot 0 with all_gather in group tp \\(ranks 0, 1\\) \\([24] times\\), "
                "reduce_scatter in group tp \\(ranks 0, 1\\) \\([24] times\\) was not done after 700 ms; a partner is dead or hangs"));
    }
    EXPECT_THAT(rank(0).out(), HasSubstr("step 1 of loss"));
}

TEST_F(RunOverNccl, ACollectiveThatHangsEndsAllAtTheDeadlineWithOperationAndGroup) {
    start("tp", "hang");
    for (const int number : {0, 1}) {
        EXPECT_EQ(rank(number).code(30s), 4);
        EXPECT_THAT(rank(number).err(),
                    ContainsRegex("in group tp \\(ranks 0, 1\\) was not done after 700 ms; a partner is dead or hangs"));
    }
}

// CUDA keeps "not yet" as the last error of the thread that asked; a launch would report it as its own.
TEST_F(RunOverNccl, WorkThatIsNotDoneAtTheEndIsNoErrorOfLaterCalls) {
    for (auto& variables : variables_) variables["FAKE_CUDA_BUSY"] = "3";
    start("tp");
    for (const int number : {0, 1}) EXPECT_EQ(rank(number).code(20s), 0) << rank(number).err();
}

TEST_F(RunOverNccl, AnErrorOfTheCardEndsAllAndNamesRankCallAndOperation) {
    variables_[1]["FAKE_CUDA_ERROR"] = "60";
    start("tp", "work");
    for (const int number : {0, 1}) {
        EXPECT_EQ(rank(number).code(20s), 4);
        EXPECT_THAT(rank(number).err(),
                    AllOf(ContainsRegex("rank 1 failed: rank 1: cudaEventRecord\\(.*\\) failed with cudaErrorECCUncorrectable"),
                          ContainsRegex("; in [a-z_]+ in group tp")));
    }
}

TEST_F(RunOverNccl, TooSmallACardIsRefusedBeforeAnythingIsAllocated) {
    variables_[1]["FAKE_CARD_BYTES"] = "1000";
    start("dp");
    for (const int number : {0, 1}) {
        EXPECT_EQ(rank(number).code(20s), 2) << rank(number).err();
        EXPECT_THAT(rank(number).err(), ContainsRegex("rank 1 needs .*, more than the .* of memory that the fake GPU has: .* are missing"));
    }
}

TEST_F(RunOverNccl, CalibratesADeviceAloneAndThenTheGroupsTogether) {
    start("calibrate", "resume");
    for (const int number : {0, 1}) ASSERT_EQ(rank(number).code(), 0) << rank(number).err();
    EXPECT_EQ(rank(1).out(), "") << "rank 0 reports";
    const auto measured = printed_last(rank(0));
    // The example's, and with a quarter of its rows.
    ASSERT_EQ(measured["grouped_products"].size(), 2U);
    EXPECT_EQ(measured["grouped_products"][0]["m"], 2);
    EXPECT_EQ(measured["grouped_products"][1]["m"], 8);
    // The fake card takes 50,000 bytes for each kernel of a graph.
    ASSERT_EQ(measured["graphs"].size(), 3U);
    for (const auto& each : measured["graphs"]) {
        EXPECT_EQ(each["bytes"], 50'000 * each["graphs"].get<int>() * each["kernels"].get<int>());
        EXPECT_EQ(each["graphs"].get<int>() * each["kernels"].get<int>(), 2048) << "twice as many until they take 64 MiB";
        EXPECT_EQ(each["spread"], 0);
        EXPECT_EQ(each["repetitions"], 5);
    }
    std::vector<std::string> operations;
    for (const auto& each : measured["collectives"]) {
        EXPECT_EQ(each["group"], "tp");
        EXPECT_EQ(each["ranks"], 2);
        EXPECT_EQ(each["nodes"], 1);
        EXPECT_EQ(each["bytes"], 4096);
        operations.push_back(each["op"]);
    }
    EXPECT_EQ(operations, (std::vector<std::string>{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"}));
    EXPECT_EQ(measured["collectives"][0]["seconds"], 1) << "rank 0 alone knew it, and nobody measured it again";
}

// All receive before they send there; an all-to-all before, which a calibration that goes on leaves out, would have connected them.
TEST_F(RunOverNccl, CalibratesThePipelinesMessages) {
    start("calibrate", "pp");
    for (const int number : {0, 1}) ASSERT_EQ(rank(number).code(20s), 0) << rank(number).err();
    const auto collectives = printed_last(rank(0))["collectives"];
    ASSERT_EQ(collectives.size(), 5U) << "all-to-all stands first";
    EXPECT_EQ(collectives[4]["group"], "pp");
    EXPECT_EQ(collectives[4]["op"], "send_receive");
}

TEST_F(RunOverNccl, ACalibrationStopsOnAllRanksWhenRank0IsInterrupted) {
    start("calibrate", "interrupt");
    for (const int number : {0, 1}) EXPECT_EQ(rank(number).code(), 4) << rank(number).err();
    EXPECT_EQ(printed_last(rank(0))["collectives"].size(), 2U);
}

}  // namespace
}  // namespace mgplan::tests::run_over_nccl_test
