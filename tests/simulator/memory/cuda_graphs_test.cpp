// Bytes of CUDA graphs against sums that fit on paper, and what must hold for any layout.

#include "simulator/memory/cuda_graphs.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/cost_model.hpp"
#include "simulator/memory/activation_memory.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::cuda_graphs_test {
namespace {

using enum CudaGraphScope;
using ::testing::ElementsAre;

constexpr std::int64_t kStream = 512 * 1024 * 2;  ///< bytes of a microbatch's hidden states: 512 tokens of 1,024 values in bf16

ModelSpec dense(std::int64_t layers) {
    ModelSpec model = gpt(layers);
    model.attention_dropout = model.hidden_dropout = 0;
    return model;
}

Layout layout_of(const Workload& workload, EnumSet<CudaGraphScope> scopes, int pp, Engine engine = Engine::mgplan, int vpp = 1) {
    LayoutRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.etp = 1;
    request.cuda_graphs = scopes;
    request.engine = engine;
    return planner::make_layout(request, workload);
}

RankMemory memory_of(const Workload& workload, const Layout& layout, int stage = 0) {
    return CostModel(workload, ideal_calibration()).stage_memory(layout, stage);
}

std::int64_t activations_and_graphs(const MemoryBreakdown& b) {
    return b.activations + b.graph_static_inputs + b.graph_boundary;
}

/// name -> bytes of one layer and microbatch
std::map<std::string, std::int64_t> boundary_of(const Workload& workload, const Layout& layout, bool mixture) {
    const LayerKinds kinds = layer_kinds(workload.model);
    const auto kind = std::find_if(kinds.kinds.begin(), kinds.kinds.end(), [&](const auto& each) { return each.mixture == mixture; });
    std::map<std::string, std::int64_t> bytes;
    for (const auto& tensor :
         graphed_layer(workload, layout, kinds, static_cast<std::size_t>(kind - kinds.kinds.begin()), policy_of(layout)).boundary)
        bytes[std::string(tensor.name)] = tensor.bytes;
    return bytes;
}

KeptAndTaken mixture_bytes(const Workload& workload, const Layout& layout) {
    ActivationMemory memory(workload);
    return memory.pieces(layout).feed_forwards.at(static_cast<std::size_t>(memory.kinds().mixture()));
}

TEST(CudaGraphMemory, WithoutGraphsIsNothing) {
    const Workload workload = workload_of(dense(8), 4, 16);
    const MemoryBreakdown b = memory_of(workload, layout_of(workload, {}, 4)).breakdown;
    EXPECT_EQ(b.graph_static_inputs, 0);
    EXPECT_EQ(b.graph_boundary, 0);
    EXPECT_EQ(b.graph_objects, 0);
}

TEST(CudaGraphMemory, OfWholeLayersMovesInputsAndAddsOneOutputASlot) {
    // Stage 0 of 4: 2 layers, 4 microbatches alive.
    const Workload workload = workload_of(dense(8), 4, 16);
    const MemoryBreakdown eager = memory_of(workload, layout_of(workload, {}, 4)).breakdown;
    const MemoryBreakdown graphs = memory_of(workload, layout_of(workload, {layer}, 4)).breakdown;
    EXPECT_EQ(graphs.graph_static_inputs, 4 * 2 * kStream);
    EXPECT_EQ(graphs.graph_boundary, 4 * kStream);
    EXPECT_EQ(graphs.activations, eager.activations - graphs.graph_static_inputs);
    EXPECT_EQ(graphs.parameters, eager.parameters);
}

TEST(CudaGraphMemory, OfHalvesAddsNothingThatANormKeepsAnyway) {
    const Workload workload = workload_of(dense(8), 4, 16);
    const MemoryBreakdown eager = memory_of(workload, layout_of(workload, {}, 4)).breakdown;
    // The attention's output is what the MLP's norm keeps.
    const MemoryBreakdown first = memory_of(workload, layout_of(workload, {attn}, 4)).breakdown;
    EXPECT_EQ(first.graph_static_inputs, 4 * 2 * kStream);
    EXPECT_EQ(first.graph_boundary, 4 * 2 * kStream);
    EXPECT_EQ(activations_and_graphs(first), activations_and_graphs(eager));
    // The MLP's output is what the next attention's norm keeps; behind a chunk's last layer there is none.
    const MemoryBreakdown second = memory_of(workload, layout_of(workload, {mlp}, 4)).breakdown;
    EXPECT_EQ(second.graph_boundary, 4 * 2 * kStream);
    EXPECT_EQ(activations_and_graphs(second), activations_and_graphs(eager) + 4 * kStream);
}

TEST(CudaGraphMemory, OfSlotsDoesNotGrowWithTheMicrobatches) {
    for (const EnumSet<CudaGraphScope> scopes : {EnumSet{layer}, EnumSet{attn}}) {
        const Workload few = workload_of(dense(8), 4, 32), many = workload_of(dense(8), 4, 512);
        for (int stage = 0; stage < 4; ++stage) {
            const auto small = memory_of(few, layout_of(few, scopes, 4), stage), large = memory_of(many, layout_of(many, scopes, 4), stage);
            EXPECT_EQ(small.breakdown, large.breakdown);
        }
        const Layout a = layout_of(few, scopes, 4, Engine::megatron), b = layout_of(many, scopes, 4, Engine::megatron);
        EXPECT_EQ(memory_of(few, a).breakdown.graph_static_inputs, memory_of(many, b).breakdown.graph_static_inputs);
        EXPECT_EQ(16 * memory_of(few, a).breakdown.graph_objects, memory_of(many, b).breakdown.graph_objects);
    }
}

TEST(CudaGraphMemory, StaysWhileTheOptimizerRuns) {
    // A short sequence: the fp32 copies of 16-bit gradients are more than all activations.
    Workload workload = workload_of(dense(8), 4, 16, 32);
    workload.training.grad_dtype = Dtype::bf16;
    const MemoryBreakdown eager = memory_of(workload, layout_of(workload, {}, 4)).breakdown;
    ASSERT_EQ(eager.activations, 0);
    const RankMemory graphs = memory_of(workload, layout_of(workload, {layer}, 4));
    CostModel model(workload, ideal_calibration());
    const GraphTerms terms = model.graphs(layout_of(workload, {layer}, 4), 0);
    EXPECT_GT(terms.resident, 0);
    EXPECT_EQ(graphs.breakdown.activations, terms.resident);
    EXPECT_EQ(graphs.breakdown.optimizer, eager.optimizer);
}

TEST(CudaGraphMemory, OfMegatronHasAMaskForEachInputAndAnOutputForEachLayer) {
    const Workload workload = workload_of(dense(8), 4, 16);
    const Layout layout = layout_of(workload, {layer}, 4, Engine::megatron);
    const MemoryBreakdown b = memory_of(workload, layout).breakdown;
    // 8 buffers of hidden states and a mask of 512 x 512 flags, and one gradient of an output.
    EXPECT_EQ(b.graph_static_inputs, 8 * (kStream + 512 * 512) + kStream);
    EXPECT_EQ(b.graph_boundary, 8 * kStream);
    const MemoryBreakdown half = memory_of(workload, layout_of(workload, {mlp}, 4, Engine::megatron)).breakdown;
    EXPECT_EQ(half.graph_static_inputs, 8 * kStream + kStream);
    // Rotary angles: one table of 512 x 64 fp32 values.
    Workload rotary = workload;
    rotary.model.position = PositionEmbedding::rope;
    EXPECT_EQ(memory_of(rotary, layout_of(rotary, {attn}, 4, Engine::megatron)).breakdown.graph_static_inputs,
              b.graph_static_inputs + 512 * 64 * 4);
}

TEST(CudaGraphMemory, OfMegatronHidesItsPoolFromTheFramework) {
    const Workload workload = workload_of(dense(8), 4, 16);
    const RankMemory eager = memory_of(workload, layout_of(workload, {}, 4, Engine::megatron));
    const RankMemory graphs = memory_of(workload, layout_of(workload, {layer}, 4, Engine::megatron));
    EXPECT_GT(graphs.peak_bytes(), eager.peak_bytes());
    EXPECT_LT(graphs.framework_bytes, graphs.breakdown.total() - graphs.breakdown.context - graphs.breakdown.fragmentation);
    EXPECT_GT(graphs.reserved_bytes, eager.reserved_bytes);
    // mgplan's arena has no such corner: all but context and the driver's own counts.
    const RankMemory slots = memory_of(workload, layout_of(workload, {layer}, 4));
    EXPECT_EQ(slots.framework_bytes, slots.peak_bytes() - slots.breakdown.context - slots.breakdown.graph_objects);
}

TEST(CudaGraphMemory, OfTheRouterIsWhatTheExpertsNeed) {
    const Workload workload = workload_of(mixture(4), 4, 16);
    LayoutRequest request;
    request.ep = 4;
    request.etp = 1;
    request.cuda_graphs = {attn, moe_router};
    const Layout layout = planner::make_layout(request, workload);
    EXPECT_EQ(boundary_of(workload, layout, true),
              (std::map<std::string, std::int64_t>{
                  {"hidden_states", kStream}, {"probabilities", 512 * 2 * 4}, {"routing_map", 512 * 2 * 4}, {"residual", kStream}}));
    EXPECT_EQ(boundary_of(workload, layout, false), (std::map<std::string, std::int64_t>{{"hidden_states", kStream}}));
    // All of it is kept for the backward anyway.
    request.cuda_graphs = {};
    EXPECT_EQ(activations_and_graphs(memory_of(workload, layout).breakdown),
              activations_and_graphs(memory_of(workload, planner::make_layout(request, workload)).breakdown));
}

TEST(CudaGraphMemory, OfPreprocessIsEachTensorOfTheDispatcher) {
    Workload workload = workload_of(mixture(4), 4, 16);
    workload.model.moe->shared_ffn = 512;
    LayoutRequest request;
    request.ep = 4;
    request.etp = 1;
    request.cuda_graphs = {attn, moe_router, moe_preprocess};
    const Layout layout = planner::make_layout(request, workload);
    std::map<std::string, std::int64_t> wanted{{"permuted_hidden_states", 2 * kStream},  // 512 tokens, 2 experts each
                                               {"probabilities", 1024 * 4},
                                               {"residual", kStream},
                                               {"tokens_per_expert", 4 * 8 * 4},  // of all ep ranks
                                               {"input_splits", 0},
                                               {"output_splits", 0},
                                               {"output_splits_tp", 0},
                                               {"num_output_tokens", 0},
                                               {"global_tokens_per_local_expert", 0},
                                               {"reversed_permutation_map", 1024 * 4},
                                               {"routing_map", 0},
                                               {"shared_experts_output", kStream}};
    EXPECT_EQ(boundary_of(workload, layout, true), wanted);
    workload.model.moe->shared_gate = true;  // within
    EXPECT_EQ(boundary_of(workload, layout, true), wanted);
    // Without attention in the graph the residual is its input once more.
    request.cuda_graphs = {moe_router, moe_preprocess};
    wanted["residual"] = 0;
    EXPECT_EQ(boundary_of(workload, planner::make_layout(request, workload), true), wanted);
    request.ep = 1;
    wanted["tokens_per_expert"] = 8 * 4;
    EXPECT_EQ(boundary_of(workload, planner::make_layout(request, workload), true), wanted);
    // Padded experts have as many rows whatever they are.
    workload.model.moe->capacity_factor = 1.5;
    workload.model.moe->pad_to_capacity = true;
    wanted["tokens_per_expert"] = 0;
    wanted["permuted_hidden_states"] = 3 * kStream;
    wanted["probabilities"] = wanted["reversed_permutation_map"] = 1536 * 4;
    EXPECT_EQ(boundary_of(workload, planner::make_layout(request, workload), true), wanted);
}

TEST(CudaGraphMemory, OfPreprocessLeavesTokensOfFlexibleDispatchersAsTheyAre) {
    Workload workload = workload_of(mixture(4), 4, 16);
    LayoutRequest request;
    request.ep = 4;
    request.etp = 1;
    request.engine = Engine::megatron;
    request.cuda_graphs = {attn, moe_router, moe_preprocess};
    workload.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
    EXPECT_EQ(boundary_of(workload, planner::make_layout(request, workload), true),
              (std::map<std::string, std::int64_t>{
                  {"hidden_states", kStream}, {"probabilities", 512 * 8 * 2}, {"routing_map", 512 * 8}, {"residual", kStream}}));
    workload.model.moe->dispatcher = TokenDispatcher::deep_ep;
    EXPECT_EQ(boundary_of(workload, planner::make_layout(request, workload), true),
              (std::map<std::string, std::int64_t>{
                  {"hidden_states", kStream}, {"probabilities", 512 * 2 * 4}, {"expert_indices", 512 * 2 * 8}, {"residual", kStream}}));
}

TEST(CudaGraphMemory, OfPreprocessFollowsMegatronsSwitches) {
    Workload workload = workload_of(mixture(4), 4, 16);
    workload.model.moe->shared_ffn = 512;
    workload.training.megatron.moe_permute_fusion = true;
    LayoutRequest request;
    request.ep = 4;
    request.etp = 1;
    request.engine = Engine::megatron;
    request.cuda_graphs = {attn, moe_router, moe_preprocess};
    const Layout layout = planner::make_layout(request, workload);
    auto found = boundary_of(workload, layout, true);
    EXPECT_EQ(found["reversed_permutation_map"], 512 * 17 * 4);
    EXPECT_EQ(found["probabilities"], 1024 * 2);
    EXPECT_EQ(found["shared_experts_output"], kStream);
    EXPECT_FALSE(found.contains("shared_experts_fc1_input"));
    workload.training.megatron.moe_shared_expert_overlap = workload.training.megatron.router_fp32 = true;
    found = boundary_of(workload, layout, true);
    EXPECT_EQ(found["probabilities"], 1024 * 4);
    EXPECT_EQ(found["shared_experts_fc1_input"], kStream);
    EXPECT_FALSE(found.contains("shared_experts_output"));
}

TEST(CudaGraphMemory, NamesEachBoundaryTensorOnceAndTheySumUp) {
    const Workload workload = workload_of(mixture(8), 4, 16);
    for (const Engine engine : {Engine::mgplan, Engine::megatron}) {
        for (const EnumSet<CudaGraphScope> scopes :
             {EnumSet{attn}, EnumSet{attn, moe_router}, EnumSet{attn, mlp, moe_router, moe_preprocess}, EnumSet{moe_router}}) {
            const Layout layout = layout_of(workload, scopes, 2, engine);
            CostModel model(workload, ideal_calibration());
            for (int stage = 0; stage < 2; ++stage) {
                const GraphTerms terms = model.graphs(layout, stage);
                std::int64_t sum = 0;
                std::map<std::string, int> names;
                for (const auto& tensor : terms.boundary) {
                    sum += tensor.bytes;
                    EXPECT_EQ(++names[std::string(tensor.name)], 1);
                }
                EXPECT_EQ(sum, terms.boundary_bytes);
                const MemoryBreakdown b = model.stage_memory(layout, stage).breakdown;
                EXPECT_EQ(b.graph_boundary, sum);
                EXPECT_EQ(b.graph_static_inputs, terms.static_inputs);
                EXPECT_EQ(b.graph_objects, terms.nodes * ideal_calibration().graph_node_bytes);
                EXPECT_GE(b.activations, terms.resident);
            }
        }
    }
}

TEST(CudaGraphMemory, OfUnequalChunksSizesSlotsForTheLargest) {
    // 7 layers in 4 chunks on 2 ranks: one chunk of each rank, or of one, has one layer less.
    const Workload workload = workload_of(dense(7), 2, 16);
    const Layout layout = layout_of(workload, {layer}, 2, Engine::mgplan, 2);
    CostModel model(workload, ideal_calibration());
    for (int stage = 0; stage < 2; ++stage) {
        const auto alive = live_at_peak(2, 2, layout.num_microbatches, 2, stage);
        const std::int64_t slots = std::accumulate(alive.begin(), alive.end(), std::int64_t{0});
        const GraphTerms terms = model.graphs(layout, stage);
        EXPECT_EQ(terms.boundary_bytes, slots * kStream);
        EXPECT_LE(terms.static_inputs, slots * 2 * kStream);
        EXPECT_GE(terms.static_inputs, alive[0] * layout.split->chunk(stage, 0).decoders * kStream +
                                           alive[1] * layout.split->chunk(stage, 1).decoders * kStream);
    }
}

TEST(CudaGraphMemory, OfAWholeIterationIsItsBatchAndItsKernels) {
    const Workload workload = workload_of(dense(8), 4, 16);
    CostModel model(workload, ideal_calibration());
    const Layout layout = layout_of(workload, {full_iteration}, 4);
    const std::int64_t tokens = 16 * 512;
    EXPECT_EQ(model.graphs(layout, 0).static_inputs, (tokens + 512) * 4) << "with the places of a microbatch's rows";
    EXPECT_EQ(model.graphs(layout, 1).static_inputs, 0);
    EXPECT_EQ(model.graphs(layout, 3).static_inputs, tokens * 4);
    EXPECT_EQ(model.graphs(layout, 3).boundary_bytes, 8);
    const LayerCosts& costs = model.costs(layout);
    EXPECT_EQ(model.graphs(layout, 1).nodes,
              16 * 2 * (costs.layers.front().cost.kernels_forward + costs.layers.front().cost.kernels_backward));
    // Megatron-LM's loader copies the whole batch, and the mask that its data loader makes.
    const GraphTerms megatron = model.graphs(layout_of(workload, {full_iteration}, 4, Engine::megatron), 3);
    EXPECT_EQ(megatron.static_inputs, tokens * 28 + tokens * 512);
    EXPECT_EQ(megatron.boundary_bytes, 16 * 4);
}

TEST(CudaGraphMemory, OfPaddedExpertsIsWhatTheCapacityAdds) {
    const Workload workload = workload_of(mixture(4), 4, 16);
    LayoutRequest request;
    request.ep = 4;
    request.etp = 1;
    const Layout layout = planner::make_layout(request, workload);
    // 512 tokens, 2 of 8 experts each: 128 rows an expert on average.
    const PaddingCost exact = padding_cost(workload, layout, 1);
    EXPECT_EQ(exact.capacity, 128);
    EXPECT_EQ(exact.extra_rows, 0);
    EXPECT_EQ(exact.extra_bytes, 0);
    const PaddingCost half = padding_cost(workload, layout, 1.5);
    EXPECT_EQ(half.capacity, 192);
    EXPECT_EQ(half.sent_rows, 8 * 192);
    EXPECT_EQ(half.extra_rows, 512);
    EXPECT_EQ(half.extra_bytes, 512 * ((1024 + 1024 + 512) * 2 + 4));
    EXPECT_EQ(half.extra_flops, 3.0 * 2 * 512 * 1024 * (1024 + 512));
    EXPECT_EQ(half.extra_traffic, std::int64_t{4} * 512 * 1024 * 2);
    // The layers hold the same rows, and for each where it comes from.
    Workload padded = workload;
    padded.model.moe->capacity_factor = 1.5;
    padded.model.moe->pad_to_capacity = true;
    const std::int64_t more = mixture_bytes(padded, layout).kept - mixture_bytes(workload, layout).kept;
    EXPECT_GE(more, half.extra_bytes);
    EXPECT_LE(more, half.extra_bytes + 512 * 12);
}

/// Bytes of norm and router, under graphs that end behind them.
KeptAndTaken router_of(const Workload& workload, Engine engine, EnumSet<RecomputeModule> modules = {}) {
    LayoutRequest request;
    request.etp = 1;
    request.cuda_graphs = {moe_router};
    request.engine = engine;
    Layout layout = planner::make_layout(request, workload);
    if (!modules.empty()) layout.recompute = Recompute::selective;
    layout.recompute_modules = modules;
    return ActivationMemory(workload).pieces(layout).router;
}

TEST(CudaGraphMemory, OfTheRouterKeepsWhatTheTraceOfNormAndRouterKeeps) {
    Workload workload = workload_of(mixture(4), 4, 16);
    // LayerNorm: input, output, mean and inverse deviation. Router: probability and expert of each copy, the scores of all experts.
    const std::int64_t rows = 512, routing = 2 * rows * (4 + 4) + rows * 8 * 4;
    const std::int64_t kept = 2 * kStream + 2 * rows * 4 + routing;
    EXPECT_EQ(router_of(workload, Engine::mgplan).kept, kept);
    EXPECT_EQ(router_of(workload, Engine::megatron).kept, kept + rows * 8 * (4 + 1)) << "tables of all experts";
    EXPECT_EQ(router_of(workload, Engine::mgplan, {RecomputeModule::layernorm}).kept, kept - kStream) << "the norm runs again";
    workload.model.moe->shared_ffn = 512;
    const std::int64_t shared = (workload.model.gated_mlp ? 3 : 2) * rows * 512 * 2;
    EXPECT_EQ(router_of(workload, Engine::mgplan).kept, kept + shared) << "which the graph holds too";
    EXPECT_EQ(router_of(workload, Engine::megatron).kept, kept + rows * 8 * (4 + 1)) << "shared experts are no part of it";
}

TEST(CudaGraphMemory, OfTheRouterTakesTheGradientsOfItsInputAndOfTheNorms) {
    Workload workload = workload_of(mixture(4), 4, 16);
    const std::int64_t alone = router_of(workload, Engine::mgplan).taken;
    // Either with the logits' gradient or with the sums over rows that the weight's gradient is made of.
    EXPECT_GT(alone, kStream + 2 * 1024 * 4);
    EXPECT_LT(alone, mixture_bytes(workload, layout_of(workload, {moe_router}, 1)).taken);
    const std::int64_t of_megatron = router_of(workload, Engine::megatron).taken;
    workload.model.moe->shared_ffn = 4096;
    EXPECT_GT(router_of(workload, Engine::mgplan).taken, alone) << "with the shared experts";
    EXPECT_EQ(router_of(workload, Engine::megatron).taken, of_megatron) << "shared experts are no part of it";
    EXPECT_EQ(ActivationMemory(workload).pieces(layout_of(workload, {attn}, 1)).router.kept, 0) << "nobody asks for it";
}

TEST(CudaGraphMemory, OfTheRouterAddsNoTablesOfAllExperts) {
    // 64 experts, of which the layers hand over the two chosen ones of each token; Megatron-LM's hand over tables.
    Workload workload = workload_of(mixture(4), 4, 16);
    workload.model.moe->experts = 64;
    const MemoryBreakdown eager = memory_of(workload, layout_of(workload, {}, 1)).breakdown;
    const MemoryBreakdown graphs = memory_of(workload, layout_of(workload, {moe_router}, 1)).breakdown;
    EXPECT_EQ(activations_and_graphs(graphs), activations_and_graphs(eager));
    workload.training.megatron.router_fp32 = true;
    EXPECT_EQ(boundary_of(workload, layout_of(workload, {moe_router}, 1, Engine::megatron), true).at("probabilities"), 512 * 64 * 4);
}

TEST(CudaGraphMemory, ShortensNoStepThatTheDeviceBounds) {
    const Workload workload = workload_of(dense(8), 4, 16);
    CostModel device(workload, ideal_calibration());
    const TimePrediction eager = device.estimate_time(layout_of(workload, {}, 4));
    for (const EnumSet<CudaGraphScope> scopes : {EnumSet{attn}, EnumSet{layer}, EnumSet{full_iteration}}) {
        const TimePrediction graphs = device.estimate_time(layout_of(workload, scopes, 4));
        EXPECT_EQ(graphs.compute_seconds, eager.compute_seconds);
        if (scopes.contains(full_iteration))
            EXPECT_DOUBLE_EQ(graphs.optimizer_seconds, eager.optimizer_seconds) << "its first products write gradients as well";
        else
            EXPECT_GT(graphs.optimizer_seconds, eager.optimizer_seconds) << "it zeroes gradients, to which graphs of layers add";
        EXPECT_DOUBLE_EQ(graphs.iteration_seconds - graphs.optimizer_seconds, eager.iteration_seconds - eager.optimizer_seconds);
    }
}

TEST(CudaGraphMemory, TakesTheHostsLaunchesOffTheStep) {
    const Workload workload = workload_of(dense(8), 4, 16);
    Calibration slow = ideal_calibration();
    slow.issue_seconds = 1;  // the host alone counts
    CostModel host(workload, slow);
    const double eager = host.estimate_seconds(layout_of(workload, {}, 4));
    const double half = host.estimate_seconds(layout_of(workload, {attn}, 4));
    const double whole = host.estimate_seconds(layout_of(workload, {layer}, 4));
    const double all = host.estimate_seconds(layout_of(workload, {full_iteration}, 4));
    EXPECT_LT(half, eager);
    EXPECT_LT(whole, half);
    EXPECT_LT(all, whole);
}

}  // namespace
}  // namespace mgplan::simulator::cuda_graphs_test
