// Runs of a small model with ranks as threads: what they report, and what happens when a rank goes wrong.
#include <chrono>
#include <random>
#include <thread>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/data/synthetic_stream.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::runtime {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

/// A Llama of two layers on tp2 pp2 dp2.
TrainingRunOptions small_run() {
    TrainingRunOptions run;
    ModelSpec& model = run.task.model;
    model = tests::byte_llama(2);
    run.task.batch = {8, 16};
    run.task.training.precision = Precision::fp32;
    Layout& layout = run.task.layout;
    layout.sizes = {8, 2, 1, 1, 2, 2, AxisOrder{}, 1};
    layout.num_microbatches = 4;
    layout.sequence_parallel = true;
    layout.group_size = 2;
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, 2, 1).value());
    run.steps = 4;
    run.learning_rate.maximum = 1e-2;
    run.data = std::make_shared<Sequences>(std::make_shared<SyntheticStream>(1, 256), 16, 8, 1);
    return run;
}

/// Calls a function at the n-th op or collective of one rank.
class Fault : public RankObserver {
public:
    Fault(int at, std::function<void(model::Device&, const model::World&)> act) : at_(at), act_(std::move(act)) {}
    void on_ready(model::Device& device, const model::World& world) override {
        device_ = &device;
        world_ = &world;
    }
    void on_op(const model::OpRecord& /*record*/) override { event(); }
    void on_collective(const model::CollectiveRecord& /*record*/) override { event(); }

private:
    void event() {
        if (device_ != nullptr && events_++ == at_) act_(*device_, *world_);
    }
    int at_;
    int events_ = 0;
    std::function<void(model::Device&, const model::World&)> act_;
    model::Device* device_ = nullptr;
    const model::World* world_ = nullptr;
};

/// The run with this fault in one rank.
TrainingRunOptions with_fault(TrainingRunOptions run, int victim, int at,
                              const std::function<void(model::Device&, const model::World&)>& act) {
    run.observe = [=](int rank) -> std::unique_ptr<RankObserver> { return rank == victim ? std::make_unique<Fault>(at, act) : nullptr; };
    return run;
}

TEST(TrainingRun, IsAsPredictedOnEveryRank) {
    TrainingRunOptions run = small_run();
    std::vector<std::int64_t> told;
    run.on_step = [&](std::int64_t step, const StepValues& /*values*/) { told.push_back(step); };
    const RunValues values = run_in_process(run);
    EXPECT_EQ(told, (std::vector<std::int64_t>{1, 2, 3, 4}));
    ASSERT_EQ(values.steps.size(), 4U);
    EXPECT_LT(values.steps.back().loss, values.steps.front().loss);
    EXPECT_GT(values.steps.front().seconds, 0);
    EXPECT_TRUE(values.as_predicted);
    ASSERT_EQ(values.ranks.size(), 8U);
    for (const auto& rank : values.ranks) {
        EXPECT_GT(rank.measured.memory.peak_bytes, 0);
        EXPECT_GE(rank.measured.memory.reserved_bytes, rank.measured.memory.peak_bytes);
        EXPECT_EQ(rank.measured, rank.predicted) << rank.rank;
        EXPECT_FALSE(rank.ops.empty());
    }
    EXPECT_FALSE(values.collectives.empty());
    EXPECT_EQ(run_in_process(run).steps.back().loss, values.steps.back().loss);  // the same bits
}

/// Four experts behind a dense layer, each token to two, on tp2 pp2 ep2.
TrainingRunOptions small_mixture_run() {
    TrainingRunOptions run = small_run();
    MoeSpec moe;
    moe.experts = 4;
    moe.top_k = 2;
    moe.expert_ffn = 24;
    moe.auxiliary_loss = 0.01;
    run.task.model.moe = moe;
    run.task.model.moe_layers = {false, true};
    run.task.layout.sizes.ep = 2;
    return run;
}

TEST(TrainingRun, OfAMixtureIsAsPredictedHoweverManyStepsItTakes) {
    for (const std::int64_t steps : {3, 30}) {
        TrainingRunOptions run = small_mixture_run();
        run.steps = steps;
        const RunValues values = run_in_process(run);
        ASSERT_EQ(std::ssize(values.steps), steps);
        EXPECT_TRUE(values.as_predicted) << steps;
        for (const auto& rank : values.ranks) EXPECT_EQ(rank.measured, rank.predicted) << rank.rank;
        for (const auto& step : values.steps) EXPECT_GE(step.auxiliary_loss.value_or(0), 0.9);
    }
    EXPECT_FALSE(run_in_process(small_run()).steps[0].auxiliary_loss);
}

TEST(TrainingRun, IsAsPredictedForMixturesToo) {
    // Rows of an expert vary from microbatch to microbatch, and with them the sizes of blocks.
    TrainingRunOptions run = small_run();
    MoeSpec& moe = run.task.model.moe.emplace();
    moe.experts = 4;
    moe.top_k = 2;
    moe.expert_ffn = 24;
    run.task.model.moe_layers = {true, true};
    run.task.layout.sizes = {8, 1, 1, 2, 2, 2, AxisOrder{}, 1};
    run.task.layout.sequence_parallel = false;
    run.task.layout.num_microbatches = 2;
    const RunValues values = run_in_process(run);
    EXPECT_TRUE(values.as_predicted);
    ASSERT_EQ(values.ranks.size(), 8U);
    for (const auto& rank : values.ranks) {
        EXPECT_EQ(rank.measured.memory.reserved_bytes, rank.predicted.memory.reserved_bytes) << rank.rank;
        EXPECT_EQ(rank.measured, rank.predicted) << rank.rank;
    }
}

TEST(TrainingRun, ALeakedTensorShowsAsADifference) {
    model::Tensor leaked;
    TrainingRunOptions run = small_run();
    run.observe = [&](int rank) -> std::unique_ptr<RankObserver> {
        // Kept by the observer, so it lives as long as the rank trains.
        struct Leak final : RankObserver {
            void on_ready(model::Device& device, const model::World& /*world*/) override {
                tensor = device.empty({3}, Dtype::fp32, model::MemoryCategory::communication, "forgotten");
            }
            void on_op(const model::OpRecord& /*record*/) override {}
            void on_collective(const model::CollectiveRecord& /*record*/) override {}
            model::Tensor tensor;
        };
        return rank == 5 ? std::make_unique<Leak>() : nullptr;
    };
    const RunValues values = run_in_process(run);
    EXPECT_FALSE(values.as_predicted);
    for (const auto& rank : values.ranks) {
        EXPECT_EQ(rank.difference.memory.high_water[4], rank.rank == 5 ? 12 : 0) << rank.rank;
        EXPECT_EQ(rank.difference.memory.peak_bytes, rank.rank == 5 ? 12 : 0) << rank.rank;
    }
}

TEST(TrainingRun, AnExtraMessageShowsAsADifference) {
    TrainingRunOptions run = small_run();
    const auto talk = [](model::Device& device, const model::World& world) {
        const std::vector<std::int32_t> pair{2, 3};
        const auto group = world.join("tp", pair);
        const model::Tensor one = device.zeros({1}, Dtype::fp32, model::MemoryCategory::workspace, "one");
        group->all_reduce(one, model::Reduction::sum);
    };
    run.observe = [&](int rank) -> std::unique_ptr<RankObserver> {
        return rank == 2 || rank == 3 ? std::make_unique<Fault>(100, talk) : nullptr;
    };
    const RunValues values = run_in_process(run);
    EXPECT_FALSE(values.as_predicted);
    for (const auto& rank : values.ranks) {
        for (const auto& each : rank.difference.collectives) {
            const bool extra = (rank.rank == 2 || rank.rank == 3) && each.group == "tp" && each.op == "all_reduce";
            EXPECT_EQ(each.count, extra ? 1 : 0) << rank.rank << " " << each.group << " " << each.op;
            EXPECT_EQ(each.payload_bytes, extra ? 4 : 0) << rank.rank << " " << each.group << " " << each.op;
        }
    }
    for (const auto& each : values.collectives) {
        if (each.measured.group == "tp" && each.measured.op == "all_reduce") {
            EXPECT_EQ(each.measured.count - each.predicted_count, 2);
        }
    }
}

TEST(TrainingRun, ARankThatThrowsAnywhereStopsAllOthersSoon) {
    std::mt19937 random(11);
    for (int round = 0; round < 24; ++round) {
        const int victim = round % 8;
        std::atomic<Clock::time_point> death{Clock::time_point{}};
        TrainingRunOptions run = small_run();
        run.steps = 1000;
        run = with_fault(run, victim, static_cast<int>(random() % 3000), [&](model::Device&, const model::World&) {
            death = Clock::now();
            throw std::runtime_error("the memory is on fire");
        });
        try {
            (void)run_in_process(run);
            FAIL() << "finished";
        } catch (const RunError& error) {
            EXPECT_THAT(error.what(), AllOf(testing::StartsWith(fmt::format("rank {} failed: the memory is on fire; after ", victim)),
                                            HasSubstr(" in group "), testing::ContainsRegex("[(]ranks .*[)]$")))
                << victim;
        }
        EXPECT_LT(Clock::now() - death.load(), 5s);
    }
}

TEST(TrainingRun, ARankThatGoesSilentIsNoticedAtTheDeadlineWithOpAndGroup) {
    std::atomic<bool> over = false;
    TrainingRunOptions run = with_fault(small_run(), 6, 200, [&](model::Device&, const model::World&) {
        while (!over) std::this_thread::sleep_for(5ms);
    });
    run.deadline = 400ms;
    std::string stuck;
    run.on_stuck = [&](const std::string& text) {
        stuck = text;
        over = true;
    };
    const auto begin = Clock::now();
    try {
        (void)run_in_process(run);
        FAIL() << "finished";
    } catch (const RunError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("waits for rank 6"), HasSubstr("rank 6 is after "), HasSubstr("in group")));
    }
    EXPECT_LT(Clock::now() - begin, 20s);
    EXPECT_THAT(stuck, HasSubstr("rank 6 did not stop within"));
}

TEST(TrainingRun, ALossThatIsNoNumberStopsTheRunOrLeavesTheStepOut) {
    TrainingRunOptions run = small_run();
    run.learning_rate.maximum = 1e25;  // the second step's products overflow
    run.task.optimizer.clip_norm = 0;
    const RunValues stopped = run_in_process(run);
    EXPECT_THAT(stopped.problem, AllOf(HasSubstr("step 2, rank "), HasSubstr("the loss of its own tokens is NaN; lower --lr")));
    ASSERT_EQ(stopped.steps.size(), 2U);
    EXPECT_FALSE(stopped.steps[0].skipped);
    EXPECT_TRUE(stopped.steps[1].skipped);
    EXPECT_TRUE(stopped.as_predicted);
    run.skip_non_finite = true;
    const RunValues values = run_in_process(run);
    EXPECT_EQ(values.problem, "");
    ASSERT_EQ(values.steps.size(), 4U);
    EXPECT_FALSE(values.steps[0].skipped);
    for (std::size_t i = 1; i < 4; ++i) EXPECT_TRUE(values.steps[i].skipped);
    EXPECT_TRUE(values.as_predicted);
}

TEST(TrainingRun, TheLearningRateWaitsForStepsThatAreLeftOut) {
    TrainingRunOptions run = small_run();
    run.learning_rate = {1e25, 0, 2, 100, LearningRateDecay::linear};
    run.task.optimizer.clip_norm = 0;
    run.skip_non_finite = true;
    const RunValues values = run_in_process(run);
    EXPECT_EQ(values.steps[0].learning_rate, 0);
    EXPECT_DOUBLE_EQ(values.steps[1].learning_rate, 5e24);
    EXPECT_TRUE(values.steps[2].skipped);
    EXPECT_DOUBLE_EQ(values.steps[2].learning_rate, 1e25);
    EXPECT_DOUBLE_EQ(values.steps[3].learning_rate, 1e25);  // an update more would have begun to lower it
}

TEST(TrainingRun, AnInterruptStopsAllRanksBehindTheSameStep) {
    std::atomic<bool> interrupt = false;
    TrainingRunOptions run = small_run();
    run.steps = 100'000;
    run.interrupt = &interrupt;
    run.on_step = [&](std::int64_t step, const StepValues& /*values*/) {
        if (step == 3) interrupt = true;
    };
    const RunValues values = run_in_process(run);
    EXPECT_EQ(values.steps.size(), 4U);
    EXPECT_TRUE(values.as_predicted);
}

TEST(TrainingRun, AnInterruptBeforeTheFirstStepEndsIt) {
    const std::atomic<bool> interrupt = true;
    TrainingRunOptions run = small_run();
    run.interrupt = &interrupt;
    EXPECT_THROW((void)run_in_process(run), RunError);
}

TEST(TrainingRun, RefusesWhatThisMachineCannotHold) {
    TrainingRunOptions run = small_run();
    run.task.model.hidden = 65536;
    run.task.model.ffn = 262144;
    run.task.model.head_dim = 16384;
    try {
        (void)run_in_process(run);
        FAIL() << "started";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("the 8 ranks of this plan need up to "), HasSubstr("iB each, "),
                                        HasSubstr("iB together, more than the "), HasSubstr(" of memory that this ")));
    }
}

}  // namespace
}  // namespace mgplan::runtime