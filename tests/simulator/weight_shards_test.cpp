// Weights that data-parallel neighbours hold in parts (--tensor-parallel-num-weight-shards): expected sums from
// megatron/core/tensor_parallel/generalized_tensor_parallelism.py at d98e8a64.

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/device_overhead.hpp"
#include "simulator/memory/gathered_weights.hpp"
#include "simulator/memory/megatron_replay.hpp"
#include "simulator/memory/model_state.hpp"
#include "simulator/price/layout_paths.hpp"

namespace mgplan::simulator::weight_shards_test {
namespace {

Parameter parameter(const std::string& name, std::vector<std::int64_t> shape, bool expert = false) {
    Parameter one;
    one.name = name;
    one.shape = std::move(shape);
    one.expert = expert;
    one.linear_weight =
        one.shape.size() == 2 && (name.find("linear_") != std::string::npos || name.find("latent_proj") != std::string::npos);
    return one;
}

TrainingSpec with_parts(std::int64_t dense, std::int64_t experts) {
    TrainingSpec training;
    training.megatron.weight_shards = {.dense = dense, .experts = experts};
    return training;
}

TEST(WeightShards, AreOfLinearLayersThatTpDivides) {
    const WeightShards shards{.dense = 4, .experts = 2};
    EXPECT_EQ(weight_parts(parameter("self_attention.linear_qkv.weight", {6144, 4096}), shards), 4);
    EXPECT_EQ(weight_parts(parameter("mlp.experts.linear_fc1.weight0", {4096, 1024}, true), shards), 2);
    EXPECT_EQ(weight_parts(parameter("embedding.word_embeddings.weight", {32000, 4096}), shards), 4);
    EXPECT_EQ(weight_parts(parameter("output_layer.weight", {32000, 4096}), shards), 4);
    EXPECT_EQ(weight_parts(parameter("self_attention.linear_qkv.layer_norm_weight", {4096}), shards), 1);
    EXPECT_EQ(weight_parts(parameter("mlp.router.weight", {8, 4096}), shards), 1);
    EXPECT_EQ(weight_parts(parameter("self_attention.linear_kv_down_proj.weight", {576, 4096}), shards), 1) << "whole on every rank";
    EXPECT_EQ(weight_parts(parameter("mlp.fc1_latent_proj.weight", {512, 4096}), shards), 1);
    EXPECT_EQ(weight_parts(parameter("mlp.fc1_latent_proj.weight", {512, 4096}), {.dense = 4, .experts = 2, .latent_projections = true}),
              4);
}

TEST(WeightShards, PadTheRowsOfAPart) {
    const TrainingSpec training = with_parts(4, 1);
    EXPECT_EQ(held_part(parameter("mlp.linear_fc1.weight", {4096, 64}), training).shape[0], 1024);
    EXPECT_EQ(held_part(parameter("mlp.linear_fc1.weight", {4100, 64}), training).shape[0], 1040) << "4160, a multiple of 16 times 4";
    TrainingSpec mxfp8 = training;
    mxfp8.precision = Precision::fp8;
    mxfp8.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    EXPECT_EQ(held_part(parameter("mlp.linear_fc1.weight", {4100, 64}), mxfp8).shape[0], 1056);
}

TEST(WeightShards, ShareBuffersByShapeAndTakeThoseOfExpertsInTurns) {
    const TrainingSpec training = with_parts(4, 2);
    GatherBufferList buffers(training, 90);
    buffers.add(parameter("mlp.linear_fc1.weight", {4096, 64}), 10, {});
    buffers.add(parameter("mlp.linear_fc2.weight", {4096, 64}), 10, {});  // of the same shape
    EXPECT_EQ(buffers.bytes().weights, 4096 * 64 * 2);
    EXPECT_EQ(buffers.bytes().gradients, (4096 + 1024) * 64 * 4);
    buffers.add(parameter("mlp.router.weight", {8, 64}), 10, {});
    EXPECT_EQ(buffers.bytes().weights, 4096 * 64 * 2) << "which is whole";
    buffers.add(parameter("mlp.experts.linear_fc1.weight0", {128, 64}, true), 10, {});
    EXPECT_EQ(buffers.bytes().weights, 4096 * 64 * 2 + 2 * 128 * 64 * 2);
    EXPECT_EQ(buffers.bytes().gradients, (4096 + 1024) * 64 * 4 + 2 * (128 + 64) * 64 * 4);
    GatherBufferList again(training, 90);
    again.add(parameter("mlp.linear_fc1.weight", {4096, 64}), 10, {.repeated = true});
    EXPECT_EQ(again.bytes().weights, 4096 * 64 * 2) << "in bf16 a forward that is repeated gathers where the first did";
    GatherBufferList table(training, 90);
    table.add(parameter("embedding.word_embeddings.weight", {4096, 64}), 1, {.multiplied = false});
    EXPECT_EQ(table.bytes().gradients, 1024 * 64 * 4) << "its own backward gives what is reduced";
    TrainingSpec mxfp8 = training;
    mxfp8.precision = Precision::fp8;
    mxfp8.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    mxfp8.fp8_parameters = true;
    GatherBufferList mixed(mxfp8, 100);
    mixed.add(parameter("mlp.linear_fc1.weight", {4096, 128}), 10, {});
    const std::int64_t quantised = mixed.bytes().weights;
    EXPECT_EQ(quantised, 2 * 4096 * 128 + 2 * 4096 * 128 / 32) << "along rows and along columns";
    mixed.add(parameter("mlp.linear_fc1.weight", {4096, 128}), 2, {.in_bf16 = true});
    EXPECT_EQ(mixed.bytes().weights, quantised + 4096 * 128 * 2) << "layers that stay in bf16 have another type";
    GatherBufferList repeated(mxfp8, 100);
    repeated.add(parameter("mlp.linear_fc1.weight", {4096, 128}), 10, {.repeated = true});
    EXPECT_EQ(repeated.bytes().weights, quantised + quantised / 2) << "along rows once more";
}

TEST(WeightShards, GiveNeighboursOfOneShapeTwoBuffers) {
    const TrainingSpec training = with_parts(4, 1);
    GatherBufferList buffers(training, 90);
    buffers.add(parameter("mlp.linear_fc1.weight", {4096, 64}), 10, {});
    buffers.add(parameter("mlp.linear_fc1.layer_norm_weight", {64}), 10, {.next = true});
    buffers.add(parameter("mlp.linear_fc2.weight", {4096, 64}), 10, {.next = true});
    EXPECT_EQ(buffers.bytes().weights, 2 * 4096 * 64 * 2);
    EXPECT_EQ(buffers.bytes().gradients, (4096 + 2 * 1024) * 64 * 4) << "of whole gradients one";
    EXPECT_EQ(buffers.weights_one_by_one(), (std::vector<std::int64_t>{4096 * 64 * 2, 4096 * 64 * 2}));
    EXPECT_EQ(buffers.gradients_one_by_one(), (std::vector<std::int64_t>{4096 * 64 * 4, 1024 * 64 * 4, 1024 * 64 * 4}));
    buffers.add(parameter("self_attention.linear_proj.weight", {4096, 32}), 10, {.next = true});
    buffers.add(parameter("self_attention.linear_qkv.weight", {4096, 64}), 10, {.next = true});
    EXPECT_EQ(buffers.bytes().weights, 2 * 4096 * 64 * 2 + 4096 * 32 * 2) << "behind another shape the first buffer is free";
}

class WeightShardsOfAJob : public testing::Test {
protected:
    Workload work;
    LayoutRequest request;

    WeightShardsOfAJob() {
        work.model = formats::load_model("llama3-8b").model;
        work.cluster = load_cluster("dgx-h100");
        work.memory_limit = work.cluster.memory_bytes;
        work.world = 32;
        work.batch = {128, 4096};
        request.engine = Engine::megatron;
        request.tp = 2;
        request.sequence_parallel = true;
    }
    [[nodiscard]] Workload with(std::int64_t parts) const {
        Workload changed = work;
        changed.training.megatron.weight_shards.dense = parts;
        return changed;
    }
};

TEST_F(WeightShardsOfAJob, DivideParametersAndGradientsAndLeaveTheOptimizer) {
    const auto state_of = [&](std::int64_t parts) {
        const Workload workload = with(parts);
        ModelStates states(workload);
        return states.of(planner::make_layout(request, workload), 0);
    };
    const ModelStateBytes whole = state_of(1), parts = state_of(8);
    EXPECT_NEAR(static_cast<double>(parts.optimizer) / static_cast<double>(whole.optimizer), 1, 1e-3) << "as many ranks share it";
    // Weights of tp 2: of q, k and v 3072 rows, of the projection 4096 of 2048, of the MLP 14,336 and 4096 of 7168; table and output layer.
    const std::int64_t layer = 3072 * 4096 + 4096 * 2048 + 14336 * 4096 + 4096 * 7168, table = 64128 * 4096;
    const std::int64_t buffers = (layer + table) * 2;
    EXPECT_NEAR(static_cast<double>(parts.parameters - buffers), static_cast<double>(whole.parameters) / 8, 2e6);
    const std::int64_t of_gradients = (layer + table) * 4 + (layer + table) / 8 * 4;
    EXPECT_NEAR(static_cast<double>(parts.gradients - of_gradients), static_cast<double>(whole.gradients) / 8, 4e6);
    // A layout of mgplan's own engine would hold whole weights, and is refused for it.
    request.engine = Engine::mgplan;
    EXPECT_THROW((void)planner::make_layout(request, with(8)), ConfigError);
}

TEST_F(WeightShardsOfAJob, HaveTwoBuffersWhereAnMlpIsSquareInItsParts) {
    work.model = formats::load_model("gpt3-175b").model;  // 4h wide without a gate: at tp 4 both weights are h by h
    work.world = 64;
    request.tp = 4;
    const auto buffers = [&](std::int64_t ffn) {
        Workload workload = with(4);
        workload.model.ffn = ffn;
        ModelStates states(workload);
        return states.gather_buffers(planner::make_layout(request, workload), 0).size();
    };
    const std::int64_t hidden = work.model.hidden;
    EXPECT_EQ(buffers(4 * hidden), buffers(8 * hidden) - 1) << "two for two weights, and of whole gradients one";
}

TEST_F(WeightShardsOfAJob, AreWhatTheAllocatorIsAskedFor) {
    for (const std::int64_t parts : {1, 2, 8}) {
        const Workload workload = with(parts);
        const Layout layout = planner::make_layout(request, workload);
        std::int64_t held = 0;
        for (const Allocation& a : megatron_setup(workload, layout, 0)) held += a.returned < 0 ? a.bytes : 0;
        for (const Allocation& a : megatron_moments(workload, layout, 0, 0)) held += a.bytes;
        ModelStates states(workload);
        for (const std::int64_t bytes : states.gather_buffers(layout, 0)) held += bytes;
        const ModelStateBytes& state = states.of(layout, 0);
        const double counted = static_cast<double>(state.parameters + state.gradients + state.optimizer);
        EXPECT_NEAR(static_cast<double>(held) / counted, 1, 1e-3) << parts;
        CostModel model(workload);
        const auto replayed = model.replay_allocator(layout, 0);
        ASSERT_TRUE(replayed.has_value());
        EXPECT_GE(static_cast<double>(replayed->allocated), 0.999 * counted) << parts;
        EXPECT_LT(static_cast<double>(replayed->allocated), 1.02 * static_cast<double>(model.stage_memory(layout, 0).framework_bytes))
            << parts;
    }
}

TEST_F(WeightShardsOfAJob, ConnectThoseThatHoldTheParts) {
    const Calibration calibration = default_calibration(work.cluster);
    const auto bytes_of_group = [&](std::int64_t parts, std::string_view name) {
        const Workload workload = with(parts);
        const DeviceOverhead overhead(workload, calibration);
        for (const CommunicatorTerm& term : overhead.terms(planner::make_layout(request, workload), 0).nccl) {
            if (term.group == name) return term.bytes;
        }
        return std::int64_t{0};
    };
    EXPECT_EQ(bytes_of_group(1, "weight-parts"), 0);
    EXPECT_GT(bytes_of_group(4, "weight-parts"), 0);
    EXPECT_GT(bytes_of_group(4, "dp-cp"), 0);
    EXPECT_EQ(bytes_of_group(16, "dp-cp"), 0) << "no two ranks hold the same part";
    EXPECT_EQ(bytes_of_group(4, "expert-weight-parts"), 0);
    work.model = formats::load_model("qwen3-30b-a3b").model;
    work.training.megatron.weight_shards.experts = 2;
    request.ep = 8;
    request.etp = 1;
    EXPECT_GT(bytes_of_group(1, "expert-weight-parts"), 0);
    EXPECT_GT(bytes_of_group(1, "expert-dp"), 0) << "over the two others that hold the same";
}

TEST_F(WeightShardsOfAJob, AreGatheredInSixteenBitsWhereTheyAreUsedSo) {
    work.cluster = load_cluster("dgx-b200");
    work.memory_limit = work.cluster.memory_bytes;
    const auto seconds = [&](bool quantised, std::int64_t layers) {
        Workload workload = with(16);
        if (quantised) {
            workload.training.precision = Precision::fp8;
            workload.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
            workload.training.fp8_parameters = workload.training.megatron.reuse_grad_buffer = true;
        }
        workload.training.megatron.bf16_layers_at_start = layers;
        CostModel model(workload);
        return model.exact_seconds(planner::make_layout(request, workload));
    };
    EXPECT_NEAR(seconds(true, work.model.layers) / seconds(false, 0), 1, 1e-6);
    EXPECT_LT(seconds(true, 0), seconds(true, work.model.layers / 2));
}

TEST_F(WeightShardsOfAJob, TakeTimeWhereLinksAreSlow) {
    const auto seconds = [&](std::int64_t parts) {
        const Workload workload = with(parts);
        CostModel model(workload);
        return model.exact_seconds(planner::make_layout(request, workload));
    };
    const double whole = seconds(1), inside = seconds(4), across = seconds(16);
    EXPECT_GT(inside, whole);
    EXPECT_LT(inside, 1.2 * whole) << "hidden inside a node but for what comes first and last";
    EXPECT_GT(across, inside) << "over the network";
}

TEST_F(WeightShardsOfAJob, RunOverNeighboursAndAreSummedOverTheOthers) {
    const Workload workload = with(4);
    const Layout layout = planner::make_layout(request, workload);
    CostModel model(workload);
    LayoutPaths paths;
    add_weight_shards(paths, layout.sizes, workload.training.megatron.weight_shards, workload.cluster, model.calibration());
    EXPECT_EQ(paths.dp_inner.ranks, 4);
    EXPECT_EQ(paths.dp_inner.ranks_per_domain, 4) << "tp 2 and 4 parts fill a node of 8";
    EXPECT_EQ(paths.dp_outer.ranks, 4);
    EXPECT_EQ(paths.dp_outer.ranks_per_domain, 1);
}

}  // namespace
}  // namespace mgplan::simulator::weight_shards_test
