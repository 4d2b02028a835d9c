// What the indexer of sparse attention costs: its products and scores run forward, once.

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/parameters/parameters.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "tests/simulator/traced_layer.hpp"

namespace mgplan::simulator::indexer_costs_test {
namespace {

constexpr std::int64_t kHeads = 64, kWidth = 128, kChosen = 2048;  // DeepSeek-V3.2-Exp, config.json

ModelSpec plain() {
    return formats::load_model("deepseek-v3").model;
}

ModelSpec indexed() {
    ModelSpec model = plain();
    model.mla->index_heads = kHeads;
    model.mla->index_head_dim = kWidth;
    model.mla->index_top_k = kChosen;
    return model;
}

Workload workload_of(const ModelSpec& model, std::int64_t sequence) {
    Workload work;
    work.model = model;
    work.cluster = load_cluster("dgx-h100");
    work.memory_limit = work.cluster.memory_bytes;
    work.world = 128;
    work.batch = {.global_batch = 128, .sequence = sequence};
    return work;
}

TEST(Indexer, OperationsAreThoseOfItsProductsAndHalfOfItsScores) {
    const ModelSpec with = indexed(), without = plain();
    const double layers = static_cast<double>(with.layers + with.mtp_layers);
    for (const std::int64_t sequence : {std::int64_t{1024}, std::int64_t{8192}}) {
        const BatchSpec batch{.global_batch = 4, .sequence = sequence};
        const auto hidden = static_cast<double>(with.hidden), rank = static_cast<double>(with.mla->q_lora_rank);
        const double products = 2 * (rank * kHeads * kWidth + hidden * kWidth + hidden * kHeads);
        const double scores = 2.0 * kHeads * kWidth * static_cast<double>(sequence) / 2;
        const double expected = layers * 4 * static_cast<double>(sequence) * (products + scores);
        EXPECT_NEAR(model_flops(with, batch) - model_flops(without, batch), expected, 1e-6 * expected) << sequence;
    }
}

TEST(Indexer, IsWholeOnEveryRankOfATensorParallelGroup) {
    const std::int64_t own = kHeads * kWidth * 1536 + kWidth * 7168 + 2 * kWidth + kHeads * 7168;
    for (const std::int64_t tp : {1, 8}) {
        std::int64_t listed = 0;
        for (const Parameter& parameter : layer_parameters(indexed(), LayerKind::dense, tp, 1, 1, "")) listed += parameter.count();
        EXPECT_EQ(listed, layer_parameter_count(indexed(), LayerKind::dense, tp, 1, 1).total());
        EXPECT_EQ(listed - layer_parameter_count(plain(), LayerKind::dense, tp, 1, 1).total(), own);
    }
    EXPECT_EQ(total_parameters(indexed()) - total_parameters(plain()), 61 * own);
}

TEST(Indexer, KeepsThePlacesThatItChoseUntilTheBackward) {
    for (const std::int64_t sequence : {std::int64_t{1024}, std::int64_t{4096}}) {
        for (const std::int64_t cp : {1, 8}) {
            const auto traced = [&](const ModelSpec& model) {
                PieceSizes sizes;
                sizes.sequence = sequence;
                sizes.cp = cp;
                return trace_dense_pieces(model, sizes);
            };
            const PieceTrace with = traced(indexed());
            std::int64_t chosen = 0, scores = 0;
            const PieceRange& forward = with.range(Piece::attention, false);
            for (const auto& tensor : with.tensors) {
                if (tensor.name == "chosen keys") {
                    chosen = tensor.bytes;
                    EXPECT_GT(tensor.returned, forward.end) << "read again by the backward of attention";
                }
                if (tensor.name == "index scores") scores = tensor.bytes;
            }
            EXPECT_EQ(chosen, sequence / cp * std::min(kChosen, sequence) * 4) << sequence << " cp " << cp;
            EXPECT_EQ(scores, sequence / cp * sequence * 4) << "of the keys of all ranks";
        }
    }
}

TEST(Indexer, TakesTimeForwardAndMemoryByAnyWay) {
    for (const Engine engine : {Engine::mgplan, Engine::megatron}) {
        LayoutRequest request;
        request.engine = engine;
        request.tp = 8;
        request.pp = 2;
        request.ep = 8;
        request.sequence_parallel = true;
        const Workload work = workload_of(indexed(), 4096), without = workload_of(plain(), 4096);
        CostModel costs(work), others(without);
        const Layout layout = planner::make_layout(request, work), other = planner::make_layout(request, without);
        const PieceCost with = costs.costs(layout).layers.front().cost, plain_cost = others.costs(other).layers.front().cost;
        EXPECT_GT(with.forward, plain_cost.forward);
        EXPECT_NEAR(with.backward, plain_cost.backward, 1e-9 * plain_cost.backward) << "the choice has no gradient";
        EXPECT_EQ(costs.peaks(layout, std::numeric_limits<std::int64_t>::max()).even, costs.memory(layout).worst.peak_bytes());
    }
}

}  // namespace
}  // namespace mgplan::simulator::indexer_costs_test
