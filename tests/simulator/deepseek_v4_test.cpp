// Layers of DeepSeek-V4: counted as its class builds them, recorded with all that they do, refused where nothing computes them.

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "plan/json/model_json.hpp"
#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/parameters/parameters.hpp"
#include "planner/constraints.hpp"
#include "planner/search_axes.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/model_state.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/recorded_flops.hpp"
#include "tests/simulator/dgx_workload.hpp"

namespace mgplan::simulator::deepseek_v4_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kHidden = 4096, kLayers = 43, kHeads = 64, kWidth = 512, kRank = 1024, kGroups = 8, kGroupRank = 1024;
constexpr std::int64_t kIndexHeads = 64, kIndexWidth = 128, kChosen = 512, kWindow = 128, kExperts = 256, kExpert = 2048;
constexpr std::int64_t kStreams = 4, kMaps = kStreams * (kStreams + 2), kVocab = 129'280;

/// The sizes of deepseek-ai/DeepSeek-V4-Flash, which are the defaults of transformers' class but for the ratios (Megatron-LM at d48bd6be,
/// examples/moe_recipes/deepseek_v4_flash): two layers of windows, then 21 of close and 20 of far compression in turn.
ModelSpec flash(const Json& changed = Json::object()) {
    Json config{{"model_type", "deepseek_v4"}, {"architectures", {"DeepseekV4ForCausalLM"}},
                {"hidden_size", kHidden},      {"num_hidden_layers", kLayers},
                {"num_attention_heads", 64},   {"vocab_size", kVocab}};
    std::vector<int> ratios{0, 0, 4};
    for (int i = 0; i < 20; ++i) ratios.insert(ratios.end(), {128, 4});
    config["compress_ratios"] = ratios;
    config.update(changed);
    return formats::read_hugging_face(config, "test", "config.json").model;
}

/// As many layers as ratios, all with experts that a router chooses.
ModelSpec layers_of(const std::vector<int>& ratios, const Json& changed = Json::object()) {
    Json config{{"compress_ratios", ratios}, {"num_hidden_layers", ratios.size()}, {"num_hash_layers", 0}};
    config.update(changed);
    return flash(config);
}

Layout layout_of(const Workload& work, Engine engine = Engine::mgplan, std::int64_t ep = 8, std::int64_t pp = 1,
                 EnumSet<RecomputeModule> modules = {}) {
    LayoutRequest request;
    request.engine = engine;
    request.ep = ep;
    request.pp = pp;
    if (!modules.empty()) request.recompute = Recompute::selective;
    request.recompute_modules = modules;
    return planner::make_layout(request, work);
}

PieceTrace trace_of(const ModelSpec& model, EnumSet<RecomputeModule> modules = {}) {
    PieceSizes sizes;
    sizes.sequence = 4096;
    sizes.keep_steps = true;
    sizes.modules = modules;
    return trace_half(model, layer_kinds(model).mixers.front(), sizes);
}

/// Bytes that the mixer of the first layer keeps for its backward, on one rank of one sequence.
std::int64_t kept_by_first(const ModelSpec& model, EnumSet<RecomputeModule> modules = {}) {
    const PieceTrace trace = trace_of(model, modules);
    const PieceRange& forward = trace.range(Piece::recurrent, false);
    std::int64_t kept = 0;
    for (const auto& tensor : trace.tensors)
        kept += forward.contains(tensor.taken) && !forward.contains(tensor.returned) ? tensor.bytes : 0;
    return kept;
}

/// FLOPs of all steps of the first layer's mixer with this name.
double flops_of_steps(const ModelSpec& model, std::string_view name, bool backward) {
    const PieceTrace trace = trace_of(model);
    double flops = 0;
    for (const PieceStep& step : trace.range(Piece::recurrent, backward).steps) flops += step.op.name == name ? step.op.flops : 0;
    return flops;
}

TEST(DeepSeekV4, HasTheParametersOfItsClass) {
    // modeling_deepseek_v4.py: of a layer attention, two norms, 257 experts, the router and two hyper-connections; of the model both
    // tables, the map that brings streams together and the final norm.
    constexpr std::int64_t kQueries = kHeads * kWidth;
    const std::int64_t attention = kRank * kHidden + kRank + kQueries * kRank + kWidth * kHidden + kWidth + kGroupRank * kQueries +
                                   kHidden * kGroups * kGroupRank + kHeads;
    const auto compressor = [](std::int64_t width, std::int64_t columns, std::int64_t rate) {
        return 2 * columns * kHidden + rate * columns + width;
    };
    const std::int64_t far = compressor(kWidth, kWidth, 128);
    const std::int64_t close = compressor(kWidth, 2 * kWidth, 4) + compressor(kIndexWidth, 2 * kIndexWidth, 4) +
                               kIndexHeads * kIndexWidth * kRank + kIndexHeads * kHidden;
    const std::int64_t layer =
        attention + 2 * kHidden + (kExperts + 1) * 3 * kHidden * kExpert + kExperts * kHidden + 2 * (kMaps * (kStreams * kHidden + 1) + 3);
    const std::int64_t all =
        kLayers * layer + 21 * close + 20 * far + 2 * kVocab * kHidden + kStreams * (kStreams * kHidden + 1) + 1 + kHidden;
    const ModelSpec model = flash();
    EXPECT_EQ(total_parameters(model), all);
    EXPECT_EQ(all, 284'332'230'231);
    ASSERT_TRUE(is_computed(model));
    const Workload work = dgx_workload(model);
    std::int64_t listed = 0;
    const auto whole = stage_parameters(model, layout_of(work, Engine::mgplan, 1), 0);
    for (const Parameter& parameter : whole.front()) listed += parameter.count();
    EXPECT_EQ(listed, all);
    EXPECT_EQ(stage_parameter_count(model, layout_of(work, Engine::mgplan, 1), 0).total(), all);
    const ParameterCount spread = stage_parameter_count(model, layout_of(work), 0);
    EXPECT_EQ(spread.dense + 8 * spread.expert, all);
    EXPECT_EQ(model_from_json(model_to_json(model), "test"), model);
    for (const Json& other : {Json{{"sliding_window", 0}}, Json{{"hc_mult", 65}}, Json{{"mlp_bias", true}}, Json{{"index_topk", 0}}})
        EXPECT_TRUE(is_counted_only(flash(other))) << other;
}

TEST(DeepSeekV4, LayersAreReadOneByOne) {
    const ModelSpec model = flash();
    const auto mixer = [](const ModelSpec& of, std::size_t layer) {
        return std::get<CompressedAttention>(*of.kinds[of.kind_of_layer[layer]].layer.mixer);
    };
    EXPECT_EQ(mixer(model, 0).compression_rate, 0);
    EXPECT_EQ(mixer(model, 2).index_top_k, kChosen);
    EXPECT_EQ(mixer(model, 3).compression_rate, 128);
    EXPECT_EQ(mixer(model, 3).index_top_k, 0);
    EXPECT_TRUE(mixer(model, 4).overlaps);
    for (std::size_t layer = 0; layer < 5; ++layer) {
        EXPECT_EQ(model.kinds[model.kind_of_layer[layer]].layer.window, kWindow);
        EXPECT_EQ(mixer(model, layer).rotary_dim, 64);
    }
    EXPECT_EQ(mixer(flash({{"partial_rotary_factor", 0.25}}), 0).rotary_dim, 128);
    EXPECT_EQ(mixer(flash({{"qk_rope_head_dim", 32}}), 0).rotary_dim, 32);
    EXPECT_TRUE(chooses_by_words(model, 2));
    EXPECT_FALSE(chooses_by_words(model, 3));
    ASSERT_TRUE(model.hyper_connections);
    EXPECT_EQ(model.stream_width(), kStreams * kHidden);
    EXPECT_TRUE(model.hyper_connections->learned_head);
    EXPECT_THAT(model.left_out, testing::Contains(HasSubstr("swiglu_limit")));
    EXPECT_THAT(flash({{"num_nextn_predict_layers", 1}}).left_out, testing::Contains(HasSubstr("multi-token prediction")));
    // What words choose costs as what a router does: the table stands in memory.
    EXPECT_EQ(layer_kinds(model).mixers.size(), 3U);
    EXPECT_EQ(layer_kinds(model).size(), 3U);
}

/// FLOPs of a token by Megatron-LM's formula (branch dev at d48bd6be, training/training.py, _dsv4_hybrid_self_attention_flops and
/// transformer_flops). It counts an indexer's backward, its scores without the causal mask, and windows whole at the beginning of a
/// sequence.
double as_megatron_counts(double windows, double close, double far, double predictions, double sequence) {
    const double h = kHidden, queries = kHeads * kWidth, layers = windows + close + far;
    const double projections = kRank * (h + queries + 1) + h * kWidth + kWidth + queries * kGroupRank + kGroups * kGroupRank * h;
    const double most = std::min<double>(kChosen, sequence / 4), seen = most * (1 - most * 4 / (2 * sequence));
    const double core = 2 * queries * (layers * kWindow + close * seen) + far * queries / 128 * sequence;
    const double compressors = 4 * close * h * kWidth + 2 * far * h * kWidth;
    const double index =
        close * (4 * h * kIndexWidth + kRank * kIndexHeads * kIndexWidth + h * kIndexHeads + kIndexHeads * kIndexWidth / 4.0 * sequence);
    const double experts = layers * 3 * h * kExpert * (6 + 1);
    return 6 * (layers * projections + core + compressors + index + experts + (1 + predictions) * h * kVocab + predictions * 2 * h * h);
}

TEST(DeepSeekV4, FlopsAreThoseThatMegatronCounts) {
    constexpr double kSequence = 4096, kClose = 21;
    const double token = model_flops(flash(), {.global_batch = 1, .sequence = 4096}) / kSequence;
    // Here the indexer runs forward alone: two thirds of its products are missing, and of its scores five sixths.
    const double products = 4.0 * kHidden * kIndexWidth + 1.0 * kRank * kIndexHeads * kIndexWidth + 1.0 * kHidden * kIndexHeads;
    const double scores = kIndexHeads * kIndexWidth / 4.0 * kSequence;
    EXPECT_NEAR((token + kClose * (4 * products + 5 * scores)) / as_megatron_counts(2, kClose, 20, 0, kSequence), 1, 0.001);
    // NVIDIA-NeMo/Megatron-Bridge@067f987:docs/performance-summary.md, DeepSeekV4 Flash on DGX-GB300: 8,224 tokens and 748 TFLOPs a second
    // and GPU, with a layer of multi-token prediction, which is not planned here.
    EXPECT_NEAR(as_megatron_counts(3, kClose, 20, 1, kSequence) * 8224 / 1e12, 748, 0.005 * 748);
}

TEST(DeepSeekV4, QueriesSeeAWindowAndCompressedKeys) {
    constexpr double kPair = 2.0 * 2 * kHeads * kWidth;  // two products
    std::int64_t window = 0, far = 0, close = 0;
    for (int t = 1; t <= 4096; ++t) {
        window += std::min(t, 128);
        far += t / 128;
        close += std::min(t / 4, 512);
    }
    EXPECT_DOUBLE_EQ(flops_of_steps(layers_of({0}), "sparse_attention", false), kPair * static_cast<double>(window));
    EXPECT_DOUBLE_EQ(flops_of_steps(layers_of({128}), "sparse_attention", false), kPair * static_cast<double>(window + far));
    EXPECT_DOUBLE_EQ(flops_of_steps(layers_of({4}), "sparse_attention", false), kPair * static_cast<double>(window + close));
    EXPECT_DOUBLE_EQ(flops_of_steps(layers_of({4}), "sparse_attention_backward", true), 2.5 * kPair * static_cast<double>(window + close));
    // An indexer scores all keys in front of each query, and runs forward alone.
    EXPECT_DOUBLE_EQ(flops_of_steps(layers_of({4}), "index_scores", false), 2.0 * kIndexHeads * kIndexWidth * 4096 * 1024 / 2);
    EXPECT_EQ(flops_of_steps(layers_of({128}), "index_scores", false), 0);
    EXPECT_EQ(flops_of_steps(layers_of({4}), "index_scores", true), 0);
    // No key is compressed in a sequence shorter than its window.
    PieceSizes sizes;
    sizes.sequence = 96;
    sizes.keep_steps = true;
    const PieceTrace trace = trace_half(layers_of({128}), layer_kinds(layers_of({128})).mixers.front(), sizes);
    for (const PieceStep& step : trace.range(Piece::recurrent, false).steps) EXPECT_NE(step.op.name, "compress_keys");
}

TEST(DeepSeekV4, LayersKeepWhatTheirBackwardReads) {
    constexpr std::int64_t kRows = 4096, kQueries = kRows * kHeads * kWidth * 2;
    const std::int64_t window = kept_by_first(layers_of({0}));
    // A compressor keeps what is summed and what weighs it, keys in front of their norm and behind it, and a statistic each.
    EXPECT_EQ(kept_by_first(layers_of({128})) - window, 2 * kRows * kWidth * 2 + kRows / 128 * (2 * kWidth * 2 + 4));
    // With windows that overlap twice as much; the places of chosen keys.
    EXPECT_EQ(kept_by_first(layers_of({4})) - window, 2 * kRows * 2 * kWidth * 2 + kRows / 4 * (2 * kWidth * 2 + 4) + kRows * kChosen * 4);
    EXPECT_EQ(kept_by_first(layers_of({4}, {{"index_topk", kChosen + 1}})) - kept_by_first(layers_of({4})), kRows * 4);
    // Queries and keys in front of their norms and behind them, with statistics, are made again; the latent stays.
    EXPECT_EQ(window - kept_by_first(layers_of({0}), {RecomputeModule::mla_up_proj}),
              2 * kQueries + kRows * kHeads * 4 + 2 * kRows * kWidth * 2 + kRows * 4);
    // Twice the queries more: the core's output and the same turned back, with a logarithm for each head.
    EXPECT_EQ(kept_by_first(layers_of({0}, {{"num_attention_heads", 2 * kHeads}})) - window, 4 * kQueries + kRows * kHeads * (4 + 4));
    EXPECT_EQ(window - kept_by_first(layers_of({0}), {RecomputeModule::layernorm}), kRows * kHidden * 2);
    // Each further stream as it came and with the maps that mix it: raw, bounded and the matrix.
    EXPECT_EQ(kept_by_first(layers_of({0}, {{"hc_mult", 5}})) - window, kRows * 2 * (kHidden + 2 * (35 - 24) + 25 - 16));
}

TEST(DeepSeekV4, TablesOfWordsStandInMemoryInPlaceOfBiases) {
    const auto parameters = [&](std::int64_t by_words, Engine engine) {
        const Workload work = dgx_workload(flash({{"num_hash_layers", by_words}}));
        return ModelStates(work).of(layout_of(work, engine), 0).parameters;
    };
    EXPECT_EQ(parameters(3, Engine::megatron) - parameters(2, Engine::megatron), kVocab * 6 * 4 - kExperts * 8);
    EXPECT_EQ(parameters(3, Engine::mgplan) - parameters(2, Engine::mgplan), kVocab * 6 * 4 - kExperts * 8);
}

TEST(DeepSeekV4, TakesTimeAndMemoryInEveryLayer) {
    const Workload work = dgx_workload(flash());
    EXPECT_THAT(planner::useful_module_sets(work, true), testing::Contains(EnumSet<RecomputeModule>{RecomputeModule::mla_up_proj}));
    for (const Engine engine : {Engine::mgplan, Engine::megatron}) {
        CostModel costs(work);
        const Layout layout = layout_of(work, engine);
        const LayerCosts layers = costs.costs(layout);
        ASSERT_EQ(layers.layers.size(), 3U);
        for (const auto& layer : layers.layers) EXPECT_GT(layer.cost.backward, layer.cost.forward);
        EXPECT_EQ(costs.peaks(layout, std::numeric_limits<std::int64_t>::max()).even, costs.memory(layout).worst.peak_bytes());
        const Layout again = layout_of(work, engine, 8, 1, {RecomputeModule::mla_up_proj});
        EXPECT_LT(costs.memory(again).worst.peak_bytes(), costs.memory(layout).worst.peak_bytes());
        EXPECT_EQ(layers.layers.front().cost.recompute, 0);
        EXPECT_GT(costs.costs(again).layers.front().cost.recompute, 0);
    }
    // Blocks of streams are made again together.
    CostModel costs(work);
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.ep = 8;
    request.recompute = Recompute::selective;
    request.recompute_modules = {RecomputeModule::mhc};
    request.mhc_recompute_layers = 4;
    const Layout blocks = planner::make_layout(request, work);
    EXPECT_THAT(planner::broken_messages(work, blocks), IsEmpty());
    EXPECT_EQ(costs.peaks(blocks, std::numeric_limits<std::int64_t>::max()).even, costs.memory(blocks).worst.peak_bytes());
    EXPECT_LT(costs.memory(blocks).worst.peak_bytes(), costs.memory(layout_of(work, Engine::megatron)).worst.peak_bytes());
}

TEST(DeepSeekV4, WhatNothingComputesIsRefused) {
    const Workload work = dgx_workload(flash());
    EXPECT_THAT(layers_timed_at_least(work.model), ElementsAre("the compressed attention of DeepSeek-V4"));
    EXPECT_THAT(layers_known_of_shapes(work.model),
                ElementsAre("the compressed attention of DeepSeek-V4", "4 residual streams that maps mix (hyper-connections)"));
    EXPECT_THAT(planner::broken_messages(work, layout_of(work)), IsEmpty());
    ParallelSizes sizes;
    sizes.tp = 4;
    sizes.cp = 2;
    EXPECT_THAT(obstacles_of_kinds(work.model, sizes), ElementsAre("tp = 4 over compressed attention, whose keys all heads share",
                                                                   "context parallelism over compressed attention (cp = 2)"));
    const auto refusal = [](const Workload& of, Engine engine, std::int64_t pp, EnumSet<RecomputeModule> modules) -> std::string {
        try {
            (void)layout_of(of, engine, 8, pp, modules);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_THAT(refusal(work, Engine::mgplan, 1, {RecomputeModule::core_attn}), HasSubstr("compressed attention keeps its core"));
    // Tables take words, which the first stage has: of Megatron-LM alone.
    Workload wide = work;
    wide.world = 256;
    EXPECT_EQ(refusal(wide, Engine::megatron, 8, {}), "accepted");
    EXPECT_THAT(refusal(wide, Engine::megatron, 32, {}),
                HasSubstr("the first stage holds 1 layer, behind which 2 layers more whose experts a table of words chooses"));
    EXPECT_EQ(refusal(wide, Engine::mgplan, 32, {}), "accepted");
    // A model with streams has maps in all of its layers.
    Json without = model_to_json(flash());
    Json& parts = without.at("layer_kinds").at("kinds").front().at("parts");
    parts.erase(std::find_if(parts.begin(), parts.end(), [](const Json& part) { return part.at("part") == "hyper_connection"; }));
    EXPECT_THROW((void)model_from_json(without, "test"), ConfigError);
    Json single = model_to_json(flash());
    single.erase("hyper_connections");
    EXPECT_THROW((void)model_from_json(single, "test"), ConfigError);
}

}  // namespace
}  // namespace mgplan::simulator::deepseek_v4_test
