#include "simulator/step_time.hpp"

#include <cmath>

#include "tests/simulator/step_time_fixture.hpp"

namespace mgplan::simulator::step_time_test {
namespace {

TEST_F(StepTime, HasTheBubbleOf1F1B) {
    const TimePrediction time = run();
    EXPECT_DOUBLE_EQ(time.compute_seconds, 8 * 4 * 3);  // microbatches · layers of a stage · (1 + 2)
    EXPECT_DOUBLE_EQ(time.bubble_seconds / time.compute_seconds, (4 - 1) / 8.0);
    EXPECT_DOUBLE_EQ(time.iteration_seconds, time.compute_seconds + time.bubble_seconds);
}

TEST_F(StepTime, InterleavingDividesTheBubble) {
    request.vpp = 4;
    const TimePrediction time = run();
    EXPECT_DOUBLE_EQ(time.bubble_seconds / time.compute_seconds, (4 - 1) / (8.0 * 4));
}

TEST_F(StepTime, AFullStageAloneHasNoBubble) {
    request.pp = 1;
    workload.world = 1;
    const TimePrediction time = run();
    EXPECT_DOUBLE_EQ(time.iteration_seconds, 8 * 16 * 3);
    EXPECT_EQ(time.bubble_seconds, 0);
}

TEST_F(StepTime, TheSlowestStageSetsThePace) {
    layers.head.forward = 5;  // on the last stage
    const TimePrediction time = run();
    EXPECT_EQ(time.slowest_stage, 3);
    EXPECT_DOUBLE_EQ(time.compute_seconds, 8 * (4 * 3 + 5));
    EXPECT_DOUBLE_EQ(time.bubble_seconds, 3 * 4 * 3);
    // Three of four stages wait for the head of each microbatch.
    EXPECT_DOUBLE_EQ(time.imbalance_seconds, 8 * 5 * 3 / 4.0);
    EXPECT_DOUBLE_EQ(time.idle_fraction(), (time.bubble_seconds + time.imbalance_seconds) / time.iteration_seconds);
}

TEST_F(StepTime, EqualStagesAreInBalance) {
    EXPECT_DOUBLE_EQ(run().imbalance_seconds, 0);
}

TEST_F(StepTime, HfuAddsTheFlopsOfRecompute) {
    dense.forward_flops = model_flops(workload.model, workload.batch) / (3 * 8 * 16);  // a model of layers alone
    TimePrediction time = run();
    EXPECT_DOUBLE_EQ(time.hfu, time.mfu);
    request.recompute = Recompute::full;
    time = run();
    EXPECT_DOUBLE_EQ(time.hfu, time.mfu * 4 / 3);
}

TEST_F(StepTime, MfuIsModelFlopsOverPeak) {
    const TimePrediction time = run();
    const double flops = model_flops(workload.model, workload.batch);
    EXPECT_DOUBLE_EQ(time.mfu, flops / time.iteration_seconds / 4 / 1e12);
    EXPECT_DOUBLE_EQ(time.model_tflops_per_gpu, time.mfu);  // peak 1e12
    EXPECT_DOUBLE_EQ(time.tokens_per_second_per_gpu, 8 * 512 / time.iteration_seconds / 4);
}

TEST_F(StepTime, OnlyInterleavedTransfersHideBehindCompute) {
    paths.pp = {.ranks = 4, .ranks_per_domain = 1, .inside = 100e9, .network = 1e9, .latency = 0};
    layers.boundary = 1'000'000'000;  // one second each way
    EXPECT_DOUBLE_EQ(run().exposed.pp, 2 * (8 + 4 - 2) - 1) << "as the events have it: PipelineRun.ATransferCosts...";
    request.vpp = 2;
    EXPECT_DOUBLE_EQ(run().exposed.pp, 2 * 3) << "while filling and draining";
    workload.training.overlap_p2p = false;
    EXPECT_DOUBLE_EQ(run().exposed.pp, 2 * (2 * 8 + 3));
}

TEST_F(StepTime, IntervalGrowsWithWhatIsUncertain) {
    const auto half_width = [this] {
        const TimePrediction time = run();
        EXPECT_NEAR(time.interval_low, time.iteration_seconds * (1 - 1.2816 * 0.02), 1e-9 * time.iteration_seconds) << "a side of its own";
        return time.interval_high / time.iteration_seconds - 1;
    };
    calibration.faster.run = 0.02;
    calibration.slower.run = 0.03;
    EXPECT_NEAR(half_width(), 1.2816 * 0.03, 1e-12);
    calibration.slower.products = 0.04;  // compute and bubble are all there is
    EXPECT_NEAR(half_width(), 1.2816 * 0.05, 1e-12);
    dense.exposed_forward.tp = 3;
    EXPECT_LT(half_width(), 1.2816 * 0.05) << "communication is sure so far";
    calibration.slower.communication = 0.5;
    // 4 layers, 8 microbatches: 96 s of communication and 96 s of compute, 3 · 24 s of bubble.
    EXPECT_NEAR(half_width(), 1.2816 * std::sqrt(0.03 * 0.03 + std::pow(0.04 * 168 / 264, 2) + std::pow(0.5 * 96 / 264, 2)), 1e-12);
    dense.exposed_forward.tp = 0;
    calibration.issue_seconds = 10;  // the host alone
    calibration.slower.host = 0.4;
    dense.kernels_forward = dense.kernels_backward = 10;
    EXPECT_NEAR(half_width(), 1.2816 * std::hypot(0.03, 0.4), 1e-3);
}

TEST_F(DataParallelTime, OverlapLeavesTheLastBucket) {
    // Ten buckets of 40 M elements; the backward of 16 layers is long enough for the others.
    const double whole = run().exposed.dp;
    workload.training.overlap_grad_reduce = workload.training.overlap_param_gather = true;
    EXPECT_NEAR(run().exposed.dp, whole / 10, 1e-12);
    workload.training.megatron.bucket_size = 100'000'000;
    EXPECT_NEAR(run().exposed.dp, whole / 10, 1e-12) << "a switch of engine megatron";
    request.engine = Engine::megatron;
    EXPECT_NEAR(run().exposed.dp, whole / 4, 1e-12);
    workload.training.megatron.num_buckets = 5;
    EXPECT_NEAR(run().exposed.dp, whole / 5, 1e-12);
    request.engine = Engine::mgplan;
    calibration.overlap_cost = 0.25;
    EXPECT_NEAR(run().exposed.dp, whole / 10 + whole * 0.9 / 4, 1e-12) << "what it takes from the compute beside it";
}

TEST_F(DataParallelTime, OverlapHidesNoMoreThanTheComputeBesideIt) {
    workload.training.overlap_grad_reduce = true;
    dense.backward = 0.01;  // 0.16 s, of a reduction of 1.4 s
    const double hidden = 0.4 * 6 * 7 / 8 - run().exposed.dp;
    EXPECT_GT(hidden, 0);
    EXPECT_LE(hidden, 0.16 + 1e-12);
}

}  // namespace
}  // namespace mgplan::simulator::step_time_test
