// Layers of Gemma 3n: counted as its class builds them, recorded with all that they do, refused where nothing computes them.

#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/json/model_json.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/parameters.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/shard_layers.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/recorded_flops.hpp"
#include "tests/simulator/dgx_workload.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::gemma3n_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

constexpr std::int64_t kHidden = 2048, kLayers = 35, kWidth = 16384, kInput = 256, kRank = 64, kStreams = 4, kWords = 262'144;
constexpr std::int64_t kQueries = 8 * 256, kKeys = 2 * 256, kShared = 15;

/// The class defaults of transformers 5.23.0, which are the sizes of google/gemma-3n-E4B.
ModelSpec e4b(const Json& changed = Json::object()) {
    Json config{{"model_type", "gemma3n_text"}, {"architectures", {"Gemma3nForCausalLM"}},
                {"intermediate_size", kWidth},  {"num_hidden_layers", kLayers},
                {"hidden_size", kHidden},       {"num_attention_heads", 8},
                {"vocab_size", 262'400}};
    config.update(changed);
    return formats::read_hugging_face(config, "test", "config.json").model;
}

std::string message_of(const Json& changed) {
    try {
        (void)e4b(changed);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

Layout layout_of(const Workload& work, std::int64_t tp, Engine engine = Engine::mgplan) {
    LayoutRequest request;
    request.engine = engine;
    request.tp = tp;
    request.sequence_parallel = tp > 1;
    return planner::make_layout(request, work);
}

/// Bytes that a layer of the first kind keeps for its backward, on one rank of one sequence.
std::int64_t kept_by_first(const ModelSpec& model) {
    PieceSizes sizes;
    sizes.sequence = 4096;
    const PieceTrace trace = trace_dense_pieces(model, sizes);
    const PieceRange& forward = trace.range(Piece::recurrent, false);
    std::int64_t kept = 0;
    for (const auto& tensor : trace.tensors)
        kept += forward.contains(tensor.taken) && !forward.contains(tensor.returned) ? tensor.bytes : 0;
    return kept;
}

/// The first layer alone, with a change.
ModelSpec first_layer(const std::function<void(Gemma3nLayer&)>& change = {}) {
    ModelSpec model = e4b();
    model.layers = 1;
    model.kind_of_layer.assign(1, 0);
    model.kinds.resize(1);
    if (change) change(std::get<Gemma3nLayer>(*model.kinds.front().layer.mixer));
    return model;
}

void leave_gate_whole(Gemma3nLayer& layer) {
    layer.mlp_zero_share = 0;
}

TEST(Gemma3n, HasTheParametersOfItsClass) {
    // modeling_gemma3n.py: of a layer attention, four norms and those of heads, the MLP, AltUp, LAuReL and the layer's inputs; of the model
    // two tables, the projection to all layers' inputs and its norm, a matrix for each further stream at either end, the final norm.
    const std::int64_t own = kLayers - kShared;
    const std::int64_t layer = 2 * kHidden * kQueries + 256 + 4 * kHidden + 3 * kHidden * kWidth +
                               (kHidden + kStreams * kStreams + kStreams * kStreams * kStreams + kStreams * kHidden + kHidden) +
                               2 * kRank * kHidden + kHidden + 2 * kInput * kHidden + kHidden;
    const std::int64_t all = kLayers * layer + own * (2 * kHidden * kKeys + 256) + 262'400 * kHidden + kWords * kLayers * kInput +
                             kHidden * kLayers * kInput + kInput + 2 * (kStreams - 1) * kHidden * kHidden + kHidden;
    const ModelSpec model = e4b();
    EXPECT_EQ(total_parameters(model), all);
    EXPECT_EQ(all, 6'835'235'568);
    ASSERT_TRUE(is_computed(model));
    EXPECT_TRUE(model.left_out.empty());
    // What ranks hold is the same; with tp 2 each half of it but for what is whole on every rank.
    std::int64_t of_ranks = 0, listed = 0;
    const Workload work = dgx_workload(model);
    const auto whole = stage_parameters(model, layout_of(work, 1), 0), halves = stage_parameters(model, layout_of(work, 2), 0);
    for (const Parameter& parameter : whole.front()) listed += parameter.count();
    EXPECT_EQ(listed, all);
    EXPECT_EQ(stage_parameter_count(model, layout_of(work, 1), 0).total(), all);
    for (const Parameter& parameter : halves.front()) of_ranks += (parameter.shard_axis.has_value() ? 2 : 1) * parameter.count();
    EXPECT_EQ(of_ranks, all);
    EXPECT_EQ(total_parameters(e4b({{"attention_bias", true}})) - all, kLayers * (kQueries + kHidden) + own * 2 * kKeys);
    const Workload biased = dgx_workload(e4b({{"attention_bias", true}}));
    EXPECT_EQ(stage_parameter_count(biased.model, layout_of(biased, 1), 0).total(), total_parameters(biased.model));
    EXPECT_FALSE(is_computed(e4b({{"altup_num_inputs", 1}})));
    EXPECT_FALSE(is_computed(e4b({{"altup_num_inputs", 65}})));
}

TEST(Gemma3n, LayersAreReadOneByOne) {
    const ModelSpec model = e4b();
    const auto window = [&](std::size_t layer) { return model.kinds[model.kind_of_layer[layer]].layer.window; };
    const auto mixer = [&](std::size_t layer) { return std::get<Gemma3nLayer>(*model.kinds[model.kind_of_layer[layer]].layer.mixer); };
    // configuration_gemma3n.py: every fifth sees all, the first ten have their gates cut to 5 %, the last 15 take over keys.
    EXPECT_EQ(window(0), 512);
    EXPECT_EQ(window(4), 0);
    EXPECT_EQ(mixer(9).mlp_zero_share, 0.95);
    EXPECT_EQ(mixer(10).mlp_zero_share, 0);
    EXPECT_FALSE(mixer(19).attention.shares_kv);
    EXPECT_TRUE(mixer(20).attention.shares_kv);
    EXPECT_EQ(model.streams(), kStreams);
    EXPECT_EQ(model.stream_width(), kStreams * kHidden);
    EXPECT_EQ(model.logit_softcap, 30);
    EXPECT_EQ(model_from_json(model_to_json(model), "test"), model);
    EXPECT_THAT(message_of({{"activation_sparsity_pattern", {0.5}}}), HasSubstr("has 1 entries for 35 layers; give one entry per layer"));
    EXPECT_THAT(message_of({{"activation_sparsity_pattern", Json(std::vector<double>(kLayers, 1.0))}}),
                HasSubstr("give numbers from 0 to below 1"));
    EXPECT_THAT(message_of({{"num_kv_shared_layers", 31}}), HasSubstr("num_kv_shared_layers = 31, but no layer in front of these"));
    EXPECT_THAT(message_of({{"hidden_size_per_layer_input", 0}}), HasSubstr("hidden_size_per_layer_input = 0"));
}

TEST(Gemma3n, FlopsAreThoseOfItsProducts) {
    constexpr double h = kHidden, s = 4096;
    const double streams = 2 * 2 * h * kStreams + 2.0 * kStreams * kStreams * (kStreams + 1);
    const double layer =
        2 * h * kQueries + 2 * kQueries * h + 2 * s * kQueries + 2 * 3 * h * kWidth + 2 * 2 * h * kRank + 2 * 3 * h * kInput + streams;
    const double token = kLayers * layer + (kLayers - kShared) * 2 * h * 2 * kKeys + 2 * 2 * (kStreams - 1) * h * h + 2 * h * 262'400;
    EXPECT_NEAR(model_flops(e4b(), {1, 4096}), 3 * token * s, 1e-9 * token * s);
}

TEST(Gemma3n, LayersKeepWhatTheirBackwardReads) {
    constexpr std::int64_t kRows = 4096, kStream = kRows * kHidden * 2;
    // Each further stream in front of the layer's prediction and behind its correction; of weights of streams those of both routers and
    // corrections, and a matrix.
    const std::int64_t five = kept_by_first(first_layer([](Gemma3nLayer&layer) { layer.streams = 5; })),
                       four = kept_by_first(first_layer());
    EXPECT_EQ(five - four, 2 * kStream + kRows * 2 * (3 + 25 - 16));
    // A cut gate is kept as it was, with two sums of each row.
    EXPECT_EQ(four - kept_by_first(first_layer(leave_gate_whole)), kRows * (kWidth * 2 + 2 * 4));
    // Two values more between the products of the bypass.
    EXPECT_EQ(kept_by_first(first_layer([](Gemma3nLayer& layer) { layer.attention.bypass_rank = kRank + 2; })) - four, kRows * 2 * 2);
    // Queries and keys: as of Gemma 4.
    EXPECT_EQ(four - kept_by_first(first_layer([](Gemma3nLayer& layer) { layer.attention.shares_kv = true; })),
              kRows * (4 * 2 * 256 * 2 + 2 * 2 * 4));
}

TEST(Gemma3n, StreamsTakeTimeAndTensorParallelRanksAddUpSumsOfGates) {
    const Workload work = dgx_workload(e4b());
    const auto count = [&](const ModelSpec& model, std::string_view name, std::int64_t tp) {
        PieceSizes sizes;
        sizes.sequence = 4096;
        sizes.tp = tp;
        sizes.keep_steps = true;
        const PieceTrace trace = trace_dense_pieces(model, sizes);
        std::int64_t found = 0;
        for (const PieceRange& range : trace.pieces) {
            for (const PieceStep& step : range.steps)
                found += name == "collective" ? (step.kind == StepKind::start ? 1 : 0) : (step.op.name == name ? 1 : 0);
        }
        return found;
    };
    for (const auto* name : {"predict_streams", "predict_streams_backward", "correct_streams", "correct_streams_backward", "cut_gate",
                             "cut_gate_backward", "weigh_corrected", "add_to_further_streams"})
        EXPECT_EQ(count(first_layer(), name, 1), 1) << name;
    EXPECT_EQ(count(first_layer(), "match_lengths", 1), 2 * (kStreams - 1)) << "at both ends";
    EXPECT_EQ(count(first_layer(leave_gate_whole), "cut_gate", 1), 0);
    EXPECT_EQ(count(first_layer(), "collective", 2) - count(first_layer(leave_gate_whole), "collective", 2), 2);
    for (const Engine engine : {Engine::mgplan, Engine::megatron}) {
        CostModel costs(work);
        const Layout one = layout_of(work, 1, engine), two = layout_of(work, 2, engine);
        const LayerCosts whole = costs.costs(one), half = costs.costs(two);
        for (std::size_t kind = 0; kind < whole.layers.size(); ++kind) {
            EXPECT_GT(whole.layers[kind].cost.forward, half.layers[kind].cost.forward);
            EXPECT_GT(whole.layers[kind].cost.backward, whole.layers[kind].cost.forward);
        }
        EXPECT_EQ(costs.peaks(two, std::numeric_limits<std::int64_t>::max()).even, costs.memory(two).worst.peak_bytes());
    }
}

TEST(Gemma3n, WhatNothingComputesIsRefused) {
    const Workload work = dgx_workload(e4b());
    EXPECT_THAT(layers_known_of_shapes(work.model), testing::ElementsAre("the residual streams of Gemma 3n", "the attention of Gemma 3n"));
    EXPECT_THAT(planner::broken_messages(work, layout_of(work, 1)), testing::IsEmpty());
    Layout piped = layout_of(work, 1);
    piped.sizes.pp = 2;
    const planner::Rule* const rule = planner::first_broken(work, piped, planner::Level::pipeline);
    ASSERT_NE(rule, nullptr);
    EXPECT_THAT(rule->message(work, piped), HasSubstr("use pp 1"));
    ParallelSizes sizes;
    sizes.tp = 4;
    sizes.cp = 2;
    EXPECT_THAT(obstacles_of_kinds(work.model, sizes),
                testing::ElementsAre("tp = 4 over 2 kv heads of layers of Gemma 3n, which it does not divide",
                                     "context parallelism over layers of Gemma 3n (cp = 2)"));
}

}  // namespace
}  // namespace mgplan::simulator::gemma3n_test
