#include "simulator/step_parts.hpp"

#include <cmath>
#include <limits>

#include "tests/simulator/step_time_fixture.hpp"

namespace mgplan::simulator::step_parts_test {
namespace {

TEST_F(StepTime, FullRecomputeRepeatsTheForward) {
    request.recompute = Recompute::full;
    const TimePrediction time = run();
    EXPECT_DOUBLE_EQ(time.recompute_seconds, 8 * 4 * 1);
    EXPECT_DOUBLE_EQ(time.compute_seconds, 8 * 4 * (3 + 1));
}

TEST_F(StepTime, BlockRecomputeRepeatsItsLayersAlone) {
    request.recompute = Recompute::full;
    request.recompute_method = RecomputeMethod::block;
    request.recompute_num_layers = 1;
    EXPECT_DOUBLE_EQ(run().recompute_seconds, 8 * 1);
    request.vpp = 2;  // the first layer of each chunk
    EXPECT_DOUBLE_EQ(run().recompute_seconds, 8 * 2);
}

TEST_F(StepTime, RecomputeRepeatsCommunicationButCountsItAsCommunication) {
    dense.exposed_forward.tp = 0.25;
    dense.exposed_backward.tp = 0.5;
    EXPECT_DOUBLE_EQ(run().exposed.tp, 8 * 4 * 0.75);
    request.recompute = Recompute::full;
    const TimePrediction time = run();
    EXPECT_DOUBLE_EQ(time.exposed.tp, 8 * 4 * 1.0);
    EXPECT_DOUBLE_EQ(time.recompute_seconds, 8 * 4 * 1);
    EXPECT_DOUBLE_EQ(time.compute_seconds, 8 * 4 * 4);
}

TEST_F(StepTime, ExchangesShowInPassesThatNoOtherRunsBeside) {
    hidden_exchanges = {0.5, 0.25};
    request.vpp = 2;
    // 2 (3 - r) + 4 + 1 of 16 passes of rank r each way are warm-up, 8 on average.
    EXPECT_DOUBLE_EQ(run().exposed.ep, 8 * 4 * 0.75 * 8 / 16);
    request.recompute = Recompute::full;
    EXPECT_DOUBLE_EQ(run().exposed.ep, 8 * 4 * (0.75 * 8 / 16 + 0.5)) << "what runs again runs alone";
    request.recompute = Recompute::none;
    request.vpp = 1;
    request.pp = 1;
    workload.world = 1;
    EXPECT_DOUBLE_EQ(run().exposed.ep, 8 * 16 * 0.75 / 8) << "the first forward and the last backward of eight";
}

TEST_F(StepTime, AnEagerHostLimitsShortKernels) {
    calibration.issue_seconds = 0.5;
    dense.kernels_forward = 4;   // 2 s against 1 s of work
    dense.kernels_backward = 2;  // 1 s against 2 s
    // Forward and backward: fourth root of 1⁴ + 2⁴.
    EXPECT_DOUBLE_EQ(run().compute_seconds, 8 * 4 * 2 * std::sqrt(std::sqrt(17.0)));
    dense.kernels_forward = 4000;
    dense.kernels_backward = 0;
    EXPECT_NEAR(run().compute_seconds, 8 * 4 * (2000 + 2), 1e-3) << "the host alone, the device alone";
}

TEST_F(StepTime, EachEngineHasItsHost) {
    request.pp = 1;
    workload.world = 1;
    calibration.issue_seconds = 100;
    calibration.host_kernel_seconds = 1000;
    calibration.optimizer_fixed_seconds = 7;
    calibration.iteration_fixed_seconds = 5;
    calibration.checkpoint_host_seconds = 1e6;
    dense.kernels_forward = dense.kernels_backward = 1;
    request.recompute = Recompute::full;
    // Two forwards and a backward of each layer.
    const TimePrediction own = run();
    EXPECT_NEAR(own.compute_seconds, 8 * 16 * 300, 1);
    EXPECT_EQ(own.iteration_seconds, own.compute_seconds) << "no fixed parts";
    request.engine = Engine::megatron;
    const TimePrediction framework = run();
    EXPECT_NEAR(framework.compute_seconds, 8 * 16 * (3000 + 1e6), 10);
    EXPECT_GE(framework.iteration_seconds, framework.compute_seconds + 12);
}

TEST_F(StepTime, AHostThatNothingStopsRunsAheadFromPassToPass) {
    request.pp = 1;
    workload.world = 1;
    calibration.issue_seconds = 0.5;
    dense.kernels_forward = 4;   // 2 s against 1 s of work
    dense.kernels_backward = 2;  // 1 s against 2 s
    const double once = 8 * 16 * 3 * std::sqrt(std::sqrt(2.0)), each = 8 * 16 * 2 * std::sqrt(std::sqrt(17.0));
    EXPECT_NEAR(run().compute_seconds, once, 1e-9) << "3 s against 3 s a layer";
    EXPECT_LT(once, each);
    workload.model.moe.emplace();
    workload.model.moe_layers.assign(16, false);
    EXPECT_NEAR(run().compute_seconds, each, 1e-9) << "a mixture's host waits for counts of rows";
    workload.model.moe->capacity_factor = 1;
    workload.model.moe->pad_to_capacity = true;
    EXPECT_NEAR(run().compute_seconds, once, 1e-9) << "experts that are filled up need no counts";
}

TEST_F(StepTime, PredictionLayersPassThroughEmbeddingAndHeadAgain) {
    request.pp = 1;
    workload.world = 1;
    layers.embedding.forward = 10;
    layers.head.forward = 100;
    EXPECT_DOUBLE_EQ(run().compute_seconds, 8 * (16 * 3 + 110));
    workload.model.mtp_layers = 1;
    layers.mtp.cost.forward = 1000;
    EXPECT_DOUBLE_EQ(run().compute_seconds, 8 * (16 * 3 + 110 + 1110));
}

TEST_F(StepTime, WindowedLayersTakeTheirOwnTime) {
    workload.model.sliding_window = 64;
    windowed_dense.forward = windowed_dense.backward = 0.5;
    for (request.vpp = 1; request.vpp <= 2; ++request.vpp) {
        workload.model.full_attention_every = 0;
        EXPECT_DOUBLE_EQ(run().compute_seconds, 8 * 4 * 1);
        workload.model.full_attention_every = 2;
        EXPECT_DOUBLE_EQ(run().compute_seconds, 8 * (2 * 1 + 2 * 3));
    }
}

TEST_F(StepTime, StagesOfWindowedLayersAreNotAlike) {
    workload.model.sliding_window = 64;
    workload.model.full_attention_every = 8;  // the last layers of the second and the fourth stage see all
    windowed_dense.forward = windowed_dense.backward = 0.5;
    EXPECT_DOUBLE_EQ(run().compute_seconds, 8 * (3 * 1 + 3)) << "of the slowest";
}

TEST_F(StepTime, TensorRanksShareATransferOfTheStreamUnderMegatron) {
    paths.pp = {.ranks = 4, .ranks_per_domain = 1, .inside = 100e9, .network = 1e9, .latency = 0};
    paths.tp = {.ranks = 2, .ranks_per_domain = 2, .inside = 100e9, .network = 1e9, .latency = 0};
    layers.boundary = 1'000'000'000;
    workload.world = 8;
    request.tp = 2;
    request.engine = Engine::megatron;
    request.sequence_parallel = false;
    const double transfers = 2 * (8 + 4 - 2) - 1;  // 1F1B of 8 microbatches on 4 stages
    EXPECT_NEAR(run().exposed.pp, transfers * (0.5 + 0.5 / 100), 1e-9) << "half over the network, gathered over NVLink";
    request.engine = Engine::mgplan;
    EXPECT_NEAR(run().exposed.pp, transfers, 1e-9);
    request.engine = Engine::megatron;
    request.sequence_parallel = true;
    EXPECT_NEAR(run().exposed.pp, transfers, 1e-9) << "each already holds its own part";
}

TEST_F(DataParallelTime, ReducesGradientsAndGathersParameters) {
    // fp32 gradients out, bf16 parameters back: (4 + 2) bytes · 7/8 at 1 GB/s.
    EXPECT_DOUBLE_EQ(run().exposed.dp, 0.4 * 6 * 7 / 8);
    workload.training.grad_dtype = Dtype::bf16;
    EXPECT_DOUBLE_EQ(run().exposed.dp, 0.4 * 4 * 7 / 8);
    workload.training.fp8_parameters = true;
    EXPECT_DOUBLE_EQ(run().exposed.dp, 0.4 * 3 * 7 / 8);
    workload.training.precision = Precision::nvfp4;
    EXPECT_DOUBLE_EQ(run().exposed.dp, 0.4 * 2.5 * 7 / 8) << "two values are a byte";
}

TEST_F(DataParallelTime, WithoutTheDistributedOptimizerIsOneAllReduce) {
    workload.training.distributed_optimizer = false;
    EXPECT_DOUBLE_EQ(run().exposed.dp, 0.4 * 4 * 2 * 7 / 8);
}

TEST_F(DataParallelTime, OfExpertsUsesTheirOwnGroup) {
    parameters = {{.dense = 0, .expert = 400'000'000}};
    EXPECT_DOUBLE_EQ(run().exposed.dp, 0.4 * 6 * 7 / 8) << "ep = 1: in the buffer of all others";
    workload.model.moe = MoeSpec{.experts = 8, .top_k = 1, .expert_ffn = 16};
    workload.model.moe_layers.assign(static_cast<std::size_t>(workload.model.layers), true);
    request.ep = 8;
    EXPECT_EQ(run().exposed.dp, 0) << "edp = 1";
    paths.edp = {.ranks = 2, .ranks_per_domain = 2, .inside = 1e9, .network = 1e9, .latency = 0};
    EXPECT_DOUBLE_EQ(run().exposed.dp, 0.4 * 6 / 2);
}

TEST_F(DataParallelTime, AnEmptyChunkSendsNothing) {
    parameters = {{.dense = 0, .expert = 0}};
    paths.dp_cp = {.ranks = 8, .ranks_per_domain = 8, .inside = 1e9, .network = 1e9, .latency = 1e-6, .growth = 0.5};
    EXPECT_EQ(run().exposed.dp, 0);
    workload.training.distributed_optimizer = false;
    EXPECT_EQ(run().exposed.dp, 0);
}

TEST_F(DataParallelTime, AdamTouches42BytesOfItsShareAndZeroesEveryGradient) {
    request.engine = Engine::megatron;
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, (400e6 / 8 * 42 + 400e6 * 4) / 1e12);
    // The first product of a step writes the gradient to which a layer's graph adds.
    request.engine = Engine::mgplan;
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, 400e6 / 8 * 42 / 1e12);
    request.cuda_graphs = {CudaGraphScope::layer};
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, (400e6 / 8 * 42 + 400e6 * 4) / 1e12);
    request.cuda_graphs = {CudaGraphScope::full_iteration};
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, 400e6 / 8 * 42 / 1e12);
}

TEST_F(DataParallelTime, TheHostUpdatesItsShareOfTheParameters) {
    request.engine = Engine::megatron;
    workload.training.offload.optimizer = 0.5;
    const double copies = run().optimizer_seconds;
    calibration.host_updates = 1e8;
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, copies + 400e6 / 8 / 2 / 1e8);
    workload.training.offload.optimizer = 0;
    calibration.host_updates = std::numeric_limits<double>::infinity();
    const double none = run().optimizer_seconds;
    calibration.host_updates = 1e8;
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, none) << "nothing is on the host";
}

TEST_F(DataParallelTime, TheOwnEngineZeroesWhatRowsAreAddedTo) {
    request.engine = Engine::mgplan;
    parameters = {{.dense = 400'000'000, .expert = 80'000'000}};
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, (480e6 / 8 * 42 + 80e6 * 4) / 1e12);
    pieces.emplace().embedding = {.dense = 50'000'000};
    EXPECT_DOUBLE_EQ(run().optimizer_seconds, (480e6 / 8 * 42 + 80e6 * 4 + 50e6 * 4) / 1e12);
}

}  // namespace
}  // namespace mgplan::simulator::step_parts_test
