// Time, memory and FLOPs of models whose layers differ in their mixer.

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "formats/model_source.hpp"
#include "model/layers/gated_delta_net.hpp"
#include "model/layers/mamba_mixer.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/piece/engine_policies.hpp"
#include "simulator/piece/stage_census.hpp"
#include "simulator/price/op_price.hpp"
#include "simulator/price/recorded_flops.hpp"
#include "tests/simulator/dgx_workload.hpp"

namespace mgplan::simulator::hybrid_costs_test {
namespace {

using testing::HasSubstr;

ModelSpec nemotron() {
    return formats::load_model("nemotron-h-8b").model;
}

ModelSpec delta_nets() {
    return formats::read_megatron_text(
               "--num-layers 8 --hidden-size 2048 --num-attention-heads 16 --vocab-size 32000 --seq-length 4096 --normalization RMSNorm "
               "--disable-bias-linear --swiglu --position-embedding-type rope --hidden-dropout 0 --attention-dropout 0 "
               "--experimental-attention-variant gated_delta_net --linear-attention-freq 4",
               "flags")
        .model;
}

/// By stage of four layers: the first stage whose layers have the same mixers and feed-forwards, in any order, and the same ends.
std::vector<int> expected_alike(const ModelSpec& model) {
    constexpr std::size_t kLayers = 4;
    std::vector<std::vector<std::uint16_t>> stages;
    for (std::size_t begin = 0; begin < model.kind_of_layer.size(); begin += kLayers) {
        const auto first = model.kind_of_layer.begin() + static_cast<std::ptrdiff_t>(begin);
        stages.emplace_back(first, first + kLayers);
        std::sort(stages.back().begin(), stages.back().end());
    }
    stages.front().push_back(100);  // ends
    stages.back().push_back(101);
    std::vector<int> alike;
    for (const auto& stage : stages) alike.push_back(static_cast<int>(std::find(stages.begin(), stages.end(), stage) - stages.begin()));
    return alike;
}

TEST(HybridCosts, KindsAreCountedByStage) {
    const ModelSpec model = nemotron();
    const LayerKinds kinds = layer_kinds(model);
    StageSplitRequest request;
    request.layers = model.layers;
    request.pp = 13;
    const SplitCensus census = take_census(kinds, std::make_shared<const StageSplit>(make_stage_split(request)));
    std::vector<std::int32_t> all(kinds.size());
    for (const ChunkCensus& stage : census.stages) {
        EXPECT_EQ(stage.layers(), 4);
        for (std::size_t kind = 0; kind < all.size(); ++kind) all[kind] += stage.kinds[kind];
    }
    EXPECT_THAT(all, testing::UnorderedElementsAre(24, 24, 4));
    // M-M- | M-M* | -M-M | M-M- | M*-M …, of which the first holds the embedding and the last the loss.
    EXPECT_NE(census.stages[0].kinds, census.stages[1].kinds) << "as many layers, of other kinds";
    EXPECT_THAT(census.alike, testing::ElementsAreArray(expected_alike(model)));
}

TEST(HybridCosts, ModelFlopsAreThoseOfTheClosedForm) {
    const double h = 4096, s = 4096, inner = 8192, state = 128, projected = 2 * inner + 2 * 8 * state + 128, vocab = 131072;
    const double mamba = 2 * h * projected + 7 * inner * state + 2 * inner * h, mlp = 2 * 2 * h * 21504,
                 attention = 2 * h * (2 * h + 2 * 1024) + 2 * s * h;
    const double token = 24 * mamba + 24 * mlp + 4 * attention + 2 * h * vocab;
    const double expected = 3 * token * s * 16;
    EXPECT_NEAR(model_flops(nemotron(), {16, 4096}), expected, 1e-9 * expected);
    const GatedDeltaNet delta{.key_heads = 2, .key_dim = 8, .value_heads = 4, .value_dim = 16, .conv_taps = 4};
    EXPECT_EQ(model_flops_of_state(delta, 10), 2 * 10 * (4 * (2 * 16 + 64) + 4 * 64 * 8));
    const KimiDeltaAttention kimi{.heads = 4, .head_dim = 8, .conv_taps = 4};
    EXPECT_EQ(model_flops_of_state(kimi, 10), 2 * 10 * (4 * 3 * 32 + 4 * 32 * 8));
    EXPECT_EQ(model_flops_of_state(LightningAttention{.heads = 4, .head_dim = 8}, 10), 10 * 2 * 2 * 4 * 8 * 8);
    AttentionBesideMamba2 beside;
    beside.mamba2 = {.inner_width = 64, .state_size = 16};
    EXPECT_EQ(model_flops_of_state(beside, 10), 10 * 7 * 64 * 16) << "as Mamba-2 that stands alone";
    EXPECT_EQ(model_flops_of_state(Attention{}, 10), 0);
}

TEST(HybridCosts, AScanTakesTheLongerOfItsBytesAndItsOperations) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    const Calibration calibration = calibration_of(cluster);
    const KernelTimes times(cluster, calibration, Precision::bf16);
    const OpRates rates{&times, &times, &calibration};
    const model::Arithmetic by_chunks{.small_products = true};
    const model::OpRecord moves{"state_space_scan", 1e6, 1 << 30, 1 << 30, 1, {}, {}, {}, by_chunks},
        multiplies{"state_space_scan", 1e13, 1000, 1000, 1, {}, {}, {}, by_chunks};
    EXPECT_EQ(op_seconds(moves, rates), times.memory_bound(double{1U << 31U}));
    EXPECT_EQ(op_seconds(multiplies, rates), times.scan(1e13, false));
    EXPECT_GT(times.scan(1e13, false), 5 * times.products(1e13)) << "Triton kernels stay far below GEMMs";
    EXPECT_GT(times.scan(1e13, true), 2 * times.scan(1e13, false));
    const model::OpRecord chosen{"chosen_keys", 1e13, 1000, 1000, 1, {}, {}, {}, by_chunks};
    EXPECT_EQ(op_seconds(chosen, rates), times.products(1e13)) << "no recurrence";
    const model::OpRecord plain{"gated_norm", 1e13, 1000, 1000};
    EXPECT_EQ(op_seconds(plain, rates), times.memory_bound(2000)) << "bound by memory, whatever it computes";
}

TEST(HybridCosts, OwnKernelsTakeAllTheirPassesProductsAndWalks) {
    const ClusterSpec cluster = load_cluster("dgx-h100");
    const Calibration calibration = calibration_of(cluster);
    const KernelTimes times(cluster, calibration, Precision::bf16);
    const OpRates rates{&times, &times, &calibration};
    const auto seconds = [&](const model::OwnKernels& own, std::int64_t launches) {
        return op_seconds({"state_space_scan", 1e13, 1000, 1000, launches, {}, {}, {}, {.small_products = true}, own}, rates);
    };
    EXPECT_EQ(seconds({1e9, 0, 1e6, 1e6, 0}, 1), times.memory_bound(1e9)) << "arithmetic beside the bytes, and not the record's FLOPs";
    EXPECT_DOUBLE_EQ(seconds({1e9, 1e12, 0, 0, 0}, 5), times.memory_bound(1e9) + times.products(1e12) + 3 * calibration.kernel_seconds);
    // An H100 (SXM) begins 128 instructions a clock on each of 132 multiprocessors at 1.83 GHz, and a thread one in four clocks.
    EXPECT_NEAR(seconds({1e3, 0, 0, 1e12, 1e3}, 1), 1e12 / 128 / 132 / 1.83e9, 1e-5);
    EXPECT_NEAR(seconds({1e3, 0, 0, 1e9, 1e7}, 1), 4e7 / 1.83e9, 1e-5) << "few threads";
}

TEST(HybridCosts, EveryHalfTakesTimeAndTensorParallelismDividesIt) {
    for (const ModelSpec& model : {nemotron(), delta_nets()}) {
        for (const Engine engine : {Engine::mgplan, Engine::megatron}) {
            const Workload work = dgx_workload(model);
            CostModel costs(work);
            LayoutRequest request;
            request.engine = engine;
            const LayerCosts whole = costs.costs(planner::make_layout(request, work));
            request.tp = 2;
            request.sequence_parallel = true;
            const LayerCosts half = costs.costs(planner::make_layout(request, work));
            ASSERT_EQ(whole.layers.size(), layer_kinds(model).size());
            for (std::size_t kind = 0; kind < whole.layers.size(); ++kind) {
                const PieceCost &one = whole.layers[kind].cost, &two = half.layers[kind].cost;
                EXPECT_GT(one.forward, 0) << model.name << kind;
                EXPECT_GT(one.backward, one.forward) << model.name << kind;
                EXPECT_GT(one.weight_gradient, 0) << model.name << kind;
                EXPECT_NEAR(two.forward_flops, one.forward_flops / 2, 1e-6 * one.forward_flops);
                // mgplan's delta rule carries states from chunk to chunk in kernels of their own, however few heads a rank has.
                const bool carries = engine == Engine::mgplan && model.name == delta_nets().name;
                EXPECT_LT(two.forward, (carries ? 0.9 : 0.75) * one.forward) << model.name << kind;
                EXPECT_GT(two.exposed_forward.tp, 0) << model.name << kind;
            }
        }
    }
}

/// Bytes of a tensor kept by one layer's forward; 0 where it is not there.
std::int64_t bytes_named(const PieceTrace& trace, std::string_view name) {
    for (const auto& tensor : trace.tensors) {
        if (tensor.name == name) return tensor.bytes;
    }
    return 0;
}

TEST(HybridCosts, MegatronsKernelsKeepMore) {
    for (const ModelSpec& model : {nemotron(), delta_nets()}) {
        const LayerKinds kinds = layer_kinds(model);
        const Workload work = dgx_workload(model);
        PieceSizes sizes;
        sizes.sequence = 4096;
        sizes.tp = 2;
        sizes.engine = Engine::megatron;
        sizes.keep_steps = true;
        sizes.traits.kind = model::DeviceKind::cuda;
        const auto mixer = static_cast<std::size_t>(
            std::find_if(kinds.mixers.begin(), kinds.mixers.end(), [](const LayerHalf& half) { return half.carries_state; }) -
            kinds.mixers.begin());
        PieceTrace trace = trace_half(model, kinds.mixers[mixer], sizes);
        const auto walks = [&](bool backward) {
            std::vector<model::OwnKernels> found;
            for (const PieceStep& step : trace.range(Piece::recurrent, backward).steps) {
                if (step.op.own.bytes > 0) found.push_back(step.op.own);
            }
            return found;
        };
        ASSERT_EQ(walks(false).size(), 1U) << "a scan or a delta rule";
        ASSERT_EQ(walks(true).size(), 1U);
        const bool scans = std::holds_alternative<Mamba2>(*kinds.mixers[mixer].layer.mixer);
        // 64 heads of 64 and 4 groups a rank: four products with states of 128 and pairs of 128 places. 16 value heads of 128, two for a
        // key head: scores of both its vectors, four products with pairs of 64 places, three with states.
        EXPECT_EQ(walks(false)[0].product_flops,
                  2.0 * 4096 * 128 * (scans ? 2 * 4096 + 4 * 128 + 4096 : 8 * 2 * 64 + 16 * 3 * 64 + 16 * 3 * 128));
        EXPECT_EQ(walks(false)[0].of_a_thread > 0, !scans) << "triangular matrices";
        EXPECT_EQ(bytes_named(trace, "scan workspace") > 0, scans);
        EXPECT_EQ(bytes_named(trace, "delta rule workspace") > 0, !scans);
        double own = 0;
        for (const PieceStep& step : trace.range(Piece::recurrent, false).steps) own += step.op.name == "delta_rule" ? step.op.flops : 0;
        apply_megatron_policies(trace, {model, kinds.mixers[mixer].layer, work.training, sizes});
        EXPECT_EQ(walks(false).size() + walks(true).size(), 0U) << "kernels of Triton";
        EXPECT_EQ(bytes_named(trace, "scan workspace"), 0);
        EXPECT_EQ(bytes_named(trace, "delta rule workspace"), 0);
        EXPECT_EQ(bytes_named(trace, "delta rule states by chunk"), scans ? 0 : 8 * 64 * 128 * 128 * 4);
        EXPECT_EQ(bytes_named(trace, "delta rule states by place"), scans ? 0 : 8 * 64 * 128 * 128 * 4);
        if (scans) {
            EXPECT_EQ(bytes_named(trace, "gated scan output"), 4096 * (8192 / 2) * 2);
            EXPECT_EQ(bytes_named(trace, "unit queries and keys"), 0);
        } else {
            const std::int64_t heads = 4096 * 32 / 2;
            EXPECT_EQ(bytes_named(trace, "unit queries and keys"), 2 * heads * 128 * 2);
            EXPECT_EQ(bytes_named(trace, "inverted matrices of chunks"), heads * 64 * 2);
            EXPECT_EQ(bytes_named(trace, "gated scan output"), 0);
            double chunked = 0;
            for (const PieceStep& step : trace.range(Piece::recurrent, false).steps)
                chunked += step.op.name == "delta_rule" ? step.op.flops : 0;
            EXPECT_GT(chunked, own) << "products within chunks beside those with the state";
        }
    }
}

/// The first mixer with a state, two sequences of 4096 tokens in bf16, tp 2.
struct StateUnderContext {
    LayerKinds kinds;
    std::size_t mixer;
    PieceSizes sizes;
    PieceTrace trace;

    StateUnderContext(const ModelSpec& model, std::int64_t cp, Engine engine) : kinds(layer_kinds(model)) {
        mixer = static_cast<std::size_t>(
            std::find_if(kinds.mixers.begin(), kinds.mixers.end(), [](const LayerHalf& half) { return half.carries_state; }) -
            kinds.mixers.begin());
        sizes.sequence = 4096;
        sizes.micro_batch = 2;
        sizes.tp = 2;
        sizes.cp = cp;
        sizes.engine = engine;
        sizes.keep_steps = true;
        sizes.traits.kind = model::DeviceKind::cuda;
        trace = trace_half(model, kinds.mixers[mixer], sizes);
        const Workload work = dgx_workload(model);
        if (engine == Engine::megatron) apply_megatron_policies(trace, {model, kinds.mixers[mixer].layer, work.training, sizes});
    }
    /// What each all-to-all over cp takes, forward or backward.
    [[nodiscard]] std::vector<std::int64_t> exchanges(bool backward) const {
        std::vector<std::int64_t> sent;
        for (const PieceStep& step : trace.range(Piece::recurrent, backward).steps) {
            if (step.kind != StepKind::start || step.group != LayerGroup::cp) continue;
            EXPECT_EQ(step.collective, model::CollectiveKind::all_to_all);
            EXPECT_EQ(step.sent, step.received);
            sent.push_back(step.sent);
        }
        return sent;
    }
    [[nodiscard]] std::int64_t flops() const {
        double sum = 0;
        for (const bool backward : {false, true}) {
            for (const PieceStep& step : trace.range(Piece::recurrent, backward).steps) sum += step.op.flops;
        }
        return static_cast<std::int64_t>(sum);
    }
};

TEST(HybridCosts, ContextParallelismExchangesHeads) {
    for (const std::int64_t cp : {2, 8}) {
        const std::int64_t rows = 2 * 4096 / cp, sent = 2 * cp;  // bytes of bf16 to all ranks, this one too
        // 128 heads of 64 and 8 groups of 128, divided over tp; a group stays whole over more ranks than groups.
        const std::int64_t inner = 8192 / 2, heads = 128 / 2, groups = std::max<std::int64_t>(8 / 2, cp);
        const std::int64_t mamba = inner + 2 * groups * 128 + heads, y = inner;
        const StateUnderContext own(nemotron(), cp, Engine::mgplan), theirs(nemotron(), cp, Engine::megatron);
        EXPECT_THAT(own.exchanges(false), testing::ElementsAre(rows * mamba / cp * sent, rows * y / cp * sent)) << cp;
        EXPECT_THAT(own.exchanges(true), testing::ElementsAre(rows * y / cp * sent, rows * mamba / cp * sent)) << cp;
        EXPECT_THAT(theirs.exchanges(false), testing::ElementsAre(rows * (mamba + inner) / cp * sent, rows * y / cp * sent)) << "z too";
        EXPECT_THAT(theirs.exchanges(true), testing::ElementsAre(rows * y / cp * sent, rows * (mamba + inner) / cp * sent)) << "and back";
        // 16 key heads and 32 value heads of 128.
        const std::int64_t values = 32 * 128 / 2, delta = 2 * 16 * 128 / 2 + values + 2 * 32 / 2;
        const StateUnderContext net(delta_nets(), cp, Engine::mgplan), their_net(delta_nets(), cp, Engine::megatron);
        EXPECT_THAT(net.exchanges(false), testing::ElementsAre(rows * delta / cp * sent, rows * values / cp * sent)) << cp;
        EXPECT_THAT(their_net.exchanges(true), testing::ElementsAre(rows * values / cp * sent, rows * (delta + values) / cp * sent)) << cp;
    }
}

TEST(HybridCosts, AProjectionIsReturnedBeforeItsGradientIsMultiplied) {
    for (const ModelSpec& model : {nemotron(), delta_nets()}) {
        const std::int64_t width = model.name == nemotron().name ? 2 * 8192 + 2 * 8 * 128 + 128 : 2 * 16 * 128 + 2 * 32 * 128 + 2 * 32;
        const StateUnderContext one(model, 1, Engine::mgplan);
        std::int64_t projected = 0, multiplied = 0;
        for (const auto& tensor : one.trace.tensors) {
            // The first of that size is the projection, the other its gradient.
            if (projected == 0 && tensor.bytes == 2 * 4096 * width / 2 * 2) projected = tensor.returned;
            if (tensor.name == "input gradient") multiplied = std::max(multiplied, tensor.taken);
        }
        EXPECT_GT(projected, 0) << model.name;
        EXPECT_LT(projected, multiplied) << model.name;
    }
}

// What is kept beside is as much as without it, and of the work each rank has its share.
TEST(HybridCosts, ContextParallelismDividesWhatAStateKeepsAndComputes) {
    for (const ModelSpec& model : {nemotron(), delta_nets()}) {
        const bool scans = model.name == nemotron().name;
        const StateUnderContext one(model, 1, Engine::megatron), four(model, 4, Engine::megatron);
        for (const std::string_view name : {"gated scan output", "unit queries and keys", "inverted matrices of chunks"})
            EXPECT_EQ(bytes_named(one.trace, name), 4 * bytes_named(four.trace, name)) << name;
        EXPECT_EQ(bytes_named(one.trace, scans ? "scan output" : "delta rule output"),
                  4 * bytes_named(four.trace, scans ? model::kScannedBySequence : model::kAttendedBySequence));
        EXPECT_NEAR(static_cast<double>(one.flops()), 4.0 * static_cast<double>(four.flops()), 0.01 * static_cast<double>(one.flops()));
    }
}

/// A delta rule's scratch after Megatron-LM's policies, of kernels as a device has them: names and bytes as they are taken, then as they
/// are returned.
std::vector<std::pair<std::string, std::int64_t>> scratch_of_rules(const ModelSpec& spec, model::DeviceKind device) {
    const LayerKinds kinds = layer_kinds(spec);
    const auto mixer = static_cast<std::size_t>(
        std::find_if(kinds.mixers.begin(), kinds.mixers.end(), [](const LayerHalf& half) { return half.carries_state; }) -
        kinds.mixers.begin());
    PieceSizes sizes;
    sizes.sequence = 4096;
    sizes.micro_batch = 3;
    sizes.tp = 2;
    sizes.engine = Engine::megatron;
    sizes.traits.kind = device;
    PieceTrace trace = trace_half(spec, kinds.mixers[mixer], sizes);
    const Workload work = dgx_workload(spec);
    apply_megatron_policies(trace, {spec, kinds.mixers[mixer].layer, work.training, sizes});
    std::map<std::int64_t, std::pair<std::string, std::int64_t>> taken, returned;
    for (const auto& tensor : trace.tensors) {
        const auto named = [&](std::string_view words) { return tensor.name.find(words) != std::string_view::npos; };
        if (tensor.category != model::MemoryCategory::workspace || tensor.bytes == 0 || !(named("delta rule") || named("queries and keys")))
            continue;
        EXPECT_TRUE(taken.emplace(tensor.taken, std::pair(std::string(tensor.name), tensor.bytes)).second) << tensor.name;
        EXPECT_TRUE(returned.emplace(tensor.returned, std::pair(std::string(tensor.name), tensor.bytes)).second) << tensor.name;
    }
    std::vector<std::pair<std::string, std::int64_t>> list;
    for (const auto& order : {taken, returned}) {
        for (const auto& [instant, scratch] : order) list.push_back(scratch);
    }
    return list;
}

// Fragmentation depends on the order too.
TEST(HybridCosts, MegatronsDeltaRulesHoldWhatOneThatWalksDoes) {
    for (const ModelSpec& spec : {delta_nets(), formats::load_model("kimi-linear-48b-a3b").model}) {
        const auto on_gpu = scratch_of_rules(spec, model::DeviceKind::cuda);
        EXPECT_EQ(on_gpu, scratch_of_rules(spec, model::DeviceKind::cpu)) << spec.name;
        EXPECT_GE(on_gpu.size(), 2 * 9U) << spec.name << ": two of the forward, seven of the backward";
    }
}

TEST(HybridCosts, MemoryIsTheSameByAnyWayToIt) {
    for (const ModelSpec& model : {nemotron(), delta_nets()}) {
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
            const Workload work = dgx_workload(model);
            CostModel costs(work);
            LayoutRequest request;
            request.pp = 2;
            request.tp = 2;
            request.recompute = recompute;
            for (const std::int64_t cp : {1, 2}) {
                request.cp = cp;
                const Layout layout = planner::make_layout(request, work);
                EXPECT_EQ(costs.peaks(layout, std::numeric_limits<std::int64_t>::max()).even, costs.memory(layout).worst.peak_bytes())
                    << model.name;
            }
        }
    }
}

TEST(HybridCosts, AGateOfAttentionsOutputTakesTimeAndMemory) {
    ModelSpec model = formats::load_model("llama3-8b").model;
    const auto of = [&](bool gated, std::int64_t tp) {
        model.attention_output_gate = gated;
        Workload work = dgx_workload(model);
        work.world = 16;
        work.confine_tp = false;
        CostModel costs(work);
        LayoutRequest request;
        request.engine = Engine::megatron;
        request.tp = tp;
        const Layout layout = planner::make_layout(request, work);
        return std::pair{costs.costs(layout).layers.front().cost.forward, costs.memory(layout).worst.peak_bytes()};
    };
    for (const std::int64_t tp : {2, 16}) {  // of 8 kv heads
        const auto [plain_seconds, plain_bytes] = of(false, tp);
        const auto [gated_seconds, gated_bytes] = of(true, tp);
        EXPECT_GT(gated_seconds, plain_seconds) << tp;
        EXPECT_GT(gated_bytes, plain_bytes) << tp;
    }
}

std::string refusal(const ModelSpec& model, const LayoutRequest& request) {
    try {
        (void)planner::make_layout(request, dgx_workload(model));
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(HybridCosts, WhatDoesNotDivideIsRefusedByName) {
    LayoutRequest request;
    request.cp = 2;
    EXPECT_EQ(refusal(nemotron(), request), "accepted");
    EXPECT_EQ(refusal(delta_nets(), request), "accepted");
    EXPECT_THAT(refusal(formats::load_model("kimi-linear-48b-a3b").model, request),
                HasSubstr("context parallelism over Kimi delta attention (cp = 2); use cp 1"));
    ModelSpec one_group = nemotron();
    for (NamedLayer& kind : one_group.kinds) {
        if (mixer_as<Mamba2>(kind.layer) != nullptr) std::get<Mamba2>(*kind.layer.mixer).groups = 1;
    }
    request = {};
    request.tp = 2;
    EXPECT_EQ(refusal(nemotron(), request), "accepted");
    EXPECT_THAT(refusal(one_group, request), HasSubstr("tp = 2 over 1 groups of Mamba-2"));
    request = {};
    request.cuda_graphs.add(CudaGraphScope::layer);
    EXPECT_THAT(refusal(nemotron(), request), HasSubstr("engine mgplan captures no single layers"));
    request.engine = Engine::megatron;
    EXPECT_EQ(refusal(nemotron(), request), "accepted");
    request.cuda_graphs = {CudaGraphScope::mamba};
    EXPECT_THAT(refusal(delta_nets(), request), HasSubstr("mamba needs Mamba layers"));
}

/// 23 layers of Mamba-2, 23 of experts and 6 of attention, each with one half. One microbatch is alive at a time.
TEST(HybridCosts, GraphsHoldTheLayersThatScopesName) {
    using enum CudaGraphScope;
    Workload work = dgx_workload(formats::load_model("nemotron-3-nano-30b-a3b").model);
    CostModel costs(work);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.ep = 8;
    const auto with = [&](EnumSet<CudaGraphScope> scopes) {
        request.cuda_graphs = scopes;
        return planner::make_layout(request, work);
    };
    const auto graphs = [&](EnumSet<CudaGraphScope> scopes) { return costs.graphs(with(scopes), 0); };
    const std::int64_t stream = std::int64_t{4096} * 2688 * 2, mask = std::int64_t{4096} * 4096;
    // Inputs of each layer, and one set of gradients of their outputs; positions are not rotary.
    EXPECT_EQ(graphs({attn}).static_inputs, 6 * (stream + mask) + stream);
    EXPECT_EQ(graphs({mamba}).static_inputs, 23 * stream + stream) << "no mask";
    EXPECT_EQ(graphs({attn, mamba}).static_inputs, 6 * (stream + mask) + 23 * stream + stream) << "the same outputs";
    EXPECT_EQ(graphs({attn, mamba}).nodes, graphs({attn}).nodes + graphs({mamba}).nodes);
    EXPECT_GT(graphs({attn, mamba, moe_router, moe_preprocess}).nodes, graphs({attn, mamba}).nodes);
    // The more kernels graphs launch, the less the host takes; experts stay outside.
    const double eager = costs.estimate_seconds(with({})), mixers = costs.estimate_seconds(with({attn, mamba})),
                 most = costs.estimate_seconds(with({attn, mamba, moe_router, moe_preprocess}));
    EXPECT_LT(mixers, eager);
    EXPECT_LT(most, mixers);
}

/// Layers of multi-token prediction that the decoder lacks: attention and experts in one, as Megatron-LM stacks them.
TEST(HybridCosts, PredictionsHaveALayerOfTheirOwn) {
    const auto read = [](const std::string& pattern) {
        return formats::read_megatron_text("--hybrid-layer-pattern " + pattern +
                                               " --hidden-size 2048 --num-attention-heads 16 --group-query-attention --num-query-groups 2 "
                                               "--vocab-size 32000 --seq-length 4096 --normalization RMSNorm --disable-bias-linear "
                                               "--squared-relu --ffn-hidden-size 1024 --position-embedding-type none --hidden-dropout 0 "
                                               "--attention-dropout 0 --num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 1024 "
                                               "--untie-embeddings-and-output-weights --mamba-num-heads 64 --mamba-state-dim 128",
                                           "flags")
            .model;
    };
    const ModelSpec without = read("MEM*ME"), with = read("MEM*ME/*E/*E");
    EXPECT_EQ(with.mtp_layers, 2);
    const LayerKinds kinds = layer_kinds(with);
    EXPECT_FALSE(kinds.prediction_in_graphs);
    EXPECT_TRUE(kinds.kinds[kinds.of_prediction].mixture && kinds.kinds[kinds.of_prediction].mixer != LayerKindHalves::kNone);
    const std::int64_t attention = 2048 * (2048 + 2 * 256) + 2048 * 2048, expert = 2 * 2048 * 1024, norm = 2048;
    const std::int64_t layer = attention + 16 * expert + 16 * 2048 + 2 * norm, depth = layer + 2 * 2048 * 2048 + 3 * norm;
    EXPECT_EQ(mtp_layer_parameter_count(with, 1, 1, 1).total(), depth);
    // A depth computes its layer, its projection and the output layer once more.
    const BatchSpec one{1, 4096};
    const double tokens = 4096, products = 6 * tokens * (2.0 * 2048 * 2048 + 2048 * 32000 + attention + 2.0 * expert);
    const double more = (model_flops(with, one) - model_flops(without, one)) / 2;
    EXPECT_GT(more, products);
    EXPECT_LT(more, 1.2 * products) << "scores of attention come on top";
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.ep = 8;
    Workload work = dgx_workload(with), less = dgx_workload(without);
    EXPECT_GT(CostModel(work).estimate(planner::make_layout(request, work)).memory.worst.peak_bytes(),
              CostModel(less).estimate(planner::make_layout(request, less)).memory.worst.peak_bytes() + 2 * depth);
}

}  // namespace
}  // namespace mgplan::simulator::hybrid_costs_test
