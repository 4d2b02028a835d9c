#include "simulator/sharded_data.hpp"

#include <gtest/gtest.h>

#include "tests/simulator/step_time_fixture.hpp"

namespace mgplan::simulator::sharded_data_test {
namespace {

/// Four layers on one stage of eight ranks with links of 1 GB/s: to gather a layer's bf16 parameters, 400 MB, or to reduce its gradients
/// takes 7/8 of 0.4 s.
class ShardedData : public StepTime {
protected:
    static constexpr double kUnit = 0.35;
    FullyShardedSpec& spec = workload.training.megatron.fully_sharded;
    PieceParameters pieces;

    ShardedData() {
        request.pp = 1;
        request.engine = Engine::megatron;
        workload.world = 8;
        workload.training.precision = Precision::bf16;
        spec.kind = FullyShardedKind::megatron_fsdp;
        spec.strategy = ShardingStrategy::optim_grads_params;
        paths.dp_inner = {.ranks = 8, .ranks_per_domain = 8, .inside = 1e9, .network = 1e9, .latency = 0};
        pieces.layers = {{.dense = 200'000'000}};
    }

    template <class Use>
    auto with_inputs(Use use) {
        const Layout layout = planner::make_layout(request, workload);
        const KernelTimes kernels(workload.cluster, calibration, workload.training.precision);
        const LayerKinds kinds = layer_kinds(workload.model);
        const SplitCensus split = take_census(kinds, layout.split);
        StepInputs in{workload, layout, calibration, kernels, layers, kinds, split, paths, 1.0, {{.dense = 800'000'000}}, &pieces};
        return use(in);
    }
    StageTime pass(double forward, double backward) {
        return with_inputs([&](const StepInputs& in) {
            StageTime time;
            time.forward = forward;
            time.backward = backward;
            ChunkCensus four;
            four.kinds = {4};
            add_sharded_traffic(in, four, time);
            return time;
        });
    }
};

TEST_F(ShardedData, LongPassesHideAllButTheFirstGather) {
    const StageTime time = pass(10, 20);
    EXPECT_NEAR(time.forward, 10 + kUnit, 1e-9);
    EXPECT_NEAR(time.backward, 20, 1e-9);
    EXPECT_NEAR(time.exposed_data, kUnit, 1e-9);
}

TEST_F(ShardedData, ShortPassesWaitForTheLinks) {
    const StageTime time = pass(0.5, 1);
    EXPECT_NEAR(time.forward, 4 * kUnit, 1e-9);       // three gathers take longer than the pass
    EXPECT_NEAR(time.backward, 2 * 4 * kUnit, 1e-9);  // gathers and reductions, one behind the other
}

TEST_F(ShardedData, HiddenTrafficSlowsThePassDown) {
    calibration.overlap_cost = 0.1;
    EXPECT_NEAR(pass(10, 20).forward, 10 + kUnit + 0.1 * 3 * kUnit, 1e-9);
    EXPECT_NEAR(pass(10, 20).backward, 20 + 0.1 * 8 * kUnit, 1e-9);
}

TEST_F(ShardedData, WithoutShardedParametersNothingIsGathered) {
    spec.strategy = ShardingStrategy::optim_grads;
    const StageTime time = pass(0.5, 1);
    EXPECT_EQ(time.forward, 0.5);
    EXPECT_NEAR(time.backward, 4 * kUnit, 1e-9);
    spec.strategy = ShardingStrategy::optim;
    EXPECT_EQ(pass(0.5, 1).backward, 1);
}

TEST_F(ShardedData, Fsdp2ThatKeepsParametersGathersThemOnce) {
    spec.kind = FullyShardedKind::torch_fsdp2;
    spec.reshard_after_forward = false;
    EXPECT_EQ(pass(0.5, 1).forward, 0.5);
    with_inputs([&](const StepInputs& in) {
        EXPECT_NEAR(sharded_data_seconds(in, {.dense = 800'000'000}).gather, 4 * kUnit, 1e-9);
        return 0;
    });
}

TEST_F(ShardedData, TheOwnEngineWaitsForWhatItShardsAndElseIsLeftAlone) {
    request.engine = Engine::mgplan;
    EXPECT_GT(pass(0.5, 1).total(), 1.5 + kUnit);
    spec = {};
    EXPECT_EQ(pass(0.5, 1).total(), 1.5);
}

TEST_F(ShardedData, OnceAnIterationInstancesReduceTheirShards) {
    paths.dp_outer = {.ranks = 2, .ranks_per_domain = 1, .inside = 1e9, .network = 1e9, .latency = 0};
    // Each rank has an eighth of 1.6 GB of gradients; an all-reduce over two ranks moves it once.
    const auto seconds = with_inputs([](const StepInputs& in) { return sharded_data_seconds(in, {.dense = 800'000'000}); });
    EXPECT_NEAR(seconds.reduce, kUnit + 0.2, 1e-9);
    spec.outer_optimizer = true;
    const auto divided = with_inputs([](const StepInputs& in) { return sharded_data_seconds(in, {.dense = 800'000'000}); });
    EXPECT_NEAR(divided.reduce, kUnit + 0.1, 1e-9);
    EXPECT_NEAR(divided.gather - seconds.gather, 0.1, 1e-9);
}

TEST_F(ShardedData, TheOptimizerIsSharedByTheRanksThatItsStateIsDividedOver) {
    const auto shards = [&] { return with_inputs([](const StepInputs& in) { return optimizer_shards(in)[0]; }); };
    EXPECT_EQ(shards(), 8);
    workload.training.distributed_optimizer_instances = 2;
    EXPECT_EQ(shards(), 4);
    spec.outer_optimizer = true;
    EXPECT_EQ(shards(), 8);
    spec.strategy = ShardingStrategy::no_shard;
    EXPECT_EQ(shards(), 1);
}

}  // namespace
}  // namespace mgplan::simulator::sharded_data_test
