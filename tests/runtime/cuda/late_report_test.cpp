// The host reads how a step ended once it has issued the next one's passes: what it waits for, and that nothing else changes.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/saved_checkpoint.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "tests/gpu/small_run.hpp"
#include "tests/runtime/checkpoint/temporary_folder.hpp"
#include "tests/runtime/cuda/emulated_devices.hpp"

namespace mgplan::tests::late_report_test {
namespace {

using runtime::RunValues;
using runtime::StepValues;
using runtime::TrainingRunOptions;
using runtime::cuda::emulated_traits;
using runtime::cuda::EmulatedDevice;
using runtime::cuda::EmulatedDevices;

void sevens(std::int64_t /*sequence*/, std::span<std::int32_t> into) {
    std::fill(into.begin(), into.end(), 7);
}

model::TrainingTask one_rank() {
    return task_for(small_llama(kScale), {.name = "one"}, Precision::bf16, kPlaces);
}

// Norm, clipping and update need nothing of the host, which waits once, when all is issued.
TEST(LateReport, IsAllThatAStepWaitsFor) {
    const auto task = one_rank();
    EmulatedDevice device(emulated_traits(true));
    runtime::InProcessWorld world(1);
    model::RankTrainer trainer(task, device, world.view(0));
    EXPECT_EQ(device.writes(), 0) << "initial weights are drawn on the device";
    for (int step = 0; step < 2; ++step) {
        const int before = device.waits();
        const model::StepReport report = trainer.step(sevens, 1e-2);
        EXPECT_TRUE(report.result.updated);
        EXPECT_GT(report.result.grad_norm, 0);
        EXPECT_EQ(device.waits() - before, 1);
    }
}

TEST(LateReport, BehindTheNextStepsPassesIsTheSameAndNothingWaits) {
    const auto task = one_rank();
    EmulatedDevice device(emulated_traits(true)), other(emulated_traits(true));
    runtime::InProcessWorld world(1), other_world(1);
    model::RankTrainer trainer(task, device, world.view(0)), whole(task, other, other_world.view(0));
    const auto expect_same = [&](const model::StepReport& late) {
        const model::StepReport report = whole.step(sevens, 1e-2);
        EXPECT_EQ(late.loss, report.loss);
        EXPECT_EQ(late.result.grad_norm, report.result.grad_norm);
    };
    trainer.begin_step(sevens);
    trainer.end_step(1e-2);
    const int before = device.waits();
    for (int step = 0; step < 3; ++step) {
        trainer.begin_step(sevens);
        expect_same(trainer.report());
        EXPECT_EQ(trainer.updates(), step + 1);
        trainer.end_step(1e-2);
    }
    EXPECT_EQ(device.waits(), before);
    expect_same(trainer.report());
    EXPECT_EQ(device.waits(), before + 1) << "nothing is issued behind the last step";
    EXPECT_EQ(trainer.position(), (model::TrainingPosition{4, 4}));
}

/// On cards that the host works ahead of, or whose steps it reads at once.
RunValues run_on(TrainingRunOptions run, bool at_once, int* waits = nullptr) {
    const auto devices = std::make_shared<EmulatedDevices>(std::int64_t{1} << 40, nullptr, at_once);
    run.devices = devices;
    RunValues values = runtime::run_in_process(run);
    if (waits != nullptr) *waits = devices->waits();
    return values;
}

bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

void expect_same_steps(const RunValues& late, const RunValues& at_once) {
    ASSERT_EQ(late.steps.size(), at_once.steps.size());
    for (std::size_t i = 0; i < late.steps.size(); ++i) {
        const StepValues &a = late.steps[i], &b = at_once.steps[i];
        EXPECT_TRUE(same_bits(a.loss, b.loss)) << i;
        EXPECT_TRUE(same_bits(a.grad_norm, b.grad_norm)) << i;
        EXPECT_EQ(a.learning_rate, b.learning_rate) << i;
        EXPECT_EQ(a.skipped, b.skipped) << i;
        EXPECT_GT(a.seconds, 0) << i;
    }
    EXPECT_EQ(late.problem, at_once.problem);
    EXPECT_TRUE(late.as_predicted);
    EXPECT_TRUE(at_once.as_predicted);
}

TEST(LateReport, OfARunWaitsAsOftenHoweverManyStepsItTakes) {
    TrainingRunOptions run = run_of(small_llama(kScale), {.name = "one"}, Precision::bf16);
    int few = 0, many = 0, at_once = 0;
    run.steps = 2;
    (void)run_on(run, false, &few);
    run.steps = 6;
    std::vector<std::int64_t> told;
    run.on_step = [&](std::int64_t step, const StepValues& /*values*/) { told.push_back(step); };
    const RunValues late = run_on(run, false, &many);
    EXPECT_THAT(told, testing::ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_EQ(many, few);
    expect_same_steps(late, run_on(run, true, &at_once));
    EXPECT_EQ(at_once - many, 5) << "all but the last";
}

TEST(LateReport, OfManyRanksIsTheSameToo) {
    for (const auto& [model, layout] : {std::pair{small_llama(kScale), Case{.name = "", .tp = 2, .pp = 2, .sequence_parallel = true}},
                                        std::pair{small_mixture(RouterScore::sigmoid, 1.25), Case{.name = "", .dp = 2, .ep = 2}}}) {
        TrainingRunOptions run = run_of(model, layout, Precision::bf16);
        run.steps = 4;
        expect_same_steps(run_on(run, false), run_on(run, true));
    }
}

/// Whose second step's products overflow.
TrainingRunOptions ruinous_run() {
    TrainingRunOptions run = run_of(small_llama(kScale), {.name = "", .dp = 2}, Precision::bf16);
    run.steps = 5;
    run.learning_rate.maximum = 1e30;
    run.task.optimizer.clip_norm = 0;
    return run;
}

TEST(LateReport, OfALossThatIsNoNumberEndsTheRunWithTheSameWords) {
    TrainingRunOptions run = ruinous_run();
    std::vector<std::int64_t> told;
    run.on_step = [&](std::int64_t step, const StepValues& /*values*/) { told.push_back(step); };
    const RunValues late = run_on(run, false);
    EXPECT_THAT(told, testing::ElementsAre(1));
    EXPECT_THAT(late.problem, testing::HasSubstr("step 2, rank "));
    EXPECT_EQ(late.steps.size(), 2U);
    expect_same_steps(late, run_on(run, true));
    run.steps = 2;  // nothing is issued behind it
    expect_same_steps(run_on(run, false), late);
}

// What the third step updates with is known once the second was read: it counts no update.
TEST(LateReport, OfStepsThatAreLeftOutMovesNoLearningRate) {
    TrainingRunOptions run = ruinous_run();
    run.learning_rate = {1e30, 0, 2, 100, runtime::LearningRateDecay::linear};
    run.skip_non_finite = true;
    const RunValues late = run_on(run, false);
    EXPECT_TRUE(late.steps[2].skipped);
    EXPECT_EQ(late.steps[2].learning_rate, late.steps[3].learning_rate);
    expect_same_steps(late, run_on(run, true));
}

TEST(LateReport, IsThereBeforeACheckpointWhichHoldsItsOwnStep) {
    TrainingRunOptions run = run_of(small_llama(kScale), {.name = "", .dp = 2}, Precision::bf16);
    run.steps = 5;
    const TemporaryFolder folder;
    run.checkpoint.folder = folder.path();
    run.checkpoint.every = 2;
    std::vector<std::int64_t> order;  // steps as they are told, checkpoints as negative ones
    run.on_step = [&](std::int64_t step, const StepValues& /*values*/) { order.push_back(step); };
    run.checkpoint.on_saved = [&](std::int64_t step, std::int64_t /*bytes*/, double /*seconds*/) { order.push_back(-step); };
    const RunValues whole = run_on(run, false);
    EXPECT_THAT(order, testing::ElementsAre(1, 2, -2, 3, 4, -4, 5, -5));
    EXPECT_TRUE(whole.as_predicted);
    for (const std::int64_t step : {2, 4, 5}) {
        const auto saved = runtime::SavedCheckpoint::open(folder.path(), step);
        EXPECT_EQ(saved->manifest().position, (model::TrainingPosition{step, step}));
    }
    run.checkpoint.resume = runtime::SavedCheckpoint::open(folder.path(), 4);
    const RunValues last = run_on(run, false);
    ASSERT_EQ(last.steps.size(), 1U);
    EXPECT_TRUE(same_bits(last.steps[0].loss, whole.steps[4].loss));
}

TEST(LateReport, OfAStepThatStopsTheRunLeavesNoCheckpointOfIt) {
    TrainingRunOptions run = ruinous_run();
    for (const std::int64_t every : {1, 2, 3}) {
        const TemporaryFolder folder;
        run.checkpoint.folder = folder.path();
        run.checkpoint.every = every;
        std::vector<std::int64_t> saved;
        run.checkpoint.on_saved = [&](std::int64_t step, std::int64_t /*bytes*/, double /*seconds*/) { saved.push_back(step); };
        expect_same_steps(run_on(run, false), run_on(run, true));
        for (const std::int64_t step : saved) EXPECT_EQ(step, 1) << "every " << every;
    }
}

}  // namespace
}  // namespace mgplan::tests::late_report_test
