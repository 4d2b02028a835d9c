#include "simulator/layers/layer_costs.hpp"

#include <algorithm>

#include "simulator/layers/attention.hpp"
#include "simulator/layers/ends.hpp"
#include "simulator/layers/mlp.hpp"

namespace mgplan::simulator {

LayerCosts layer_costs(const Shard& shard) {
    const ModelSpec& model = shard.model();
    LayerCosts costs;
    const PieceCost attention = attention_cost(shard);
    const bool has_mixture = model.moe.has_value();
    const bool has_dense = !has_mixture || std::find(model.moe_layers.begin(), model.moe_layers.end(), false) != model.moe_layers.end();
    if (has_dense) {
        costs.dense = attention;
        costs.dense += dense_mlp_cost(shard);
    }
    if (has_mixture) {
        costs.mixture = attention;
        costs.mixture += mixture_cost(shard);
    }
    costs.embedding = embedding_cost(shard);
    costs.head = head_cost(shard);
    costs.boundary = shard.tokens_outside * model.hidden * shard.element;
    if (model.mtp_layers > 0) {
        // A decoder layer of the last kind, the 2h -> h projection, and the shared head once more (arXiv 2412.19437, 2.2).
        costs.mtp = has_mixture ? costs.mixture : costs.dense;
        costs.mtp += costs.head;
        costs.mtp += costs.embedding;
        PieceCost projection;
        projection.forward = shard.kernels->gemm(shard.tokens, model.hidden / shard.tp, 2 * model.hidden);
        projection.backward = 2 * projection.forward;
        projection.forward_flops = 4.0 * static_cast<double>(shard.tokens) * static_cast<double>(model.hidden) *
                                   static_cast<double>(model.hidden) / static_cast<double>(shard.tp);
        projection.saved = 3 * costs.boundary;
        costs.mtp += projection;
    }
    return costs;
}

PieceParameters piece_parameters(const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp) {
    PieceParameters counts;
    counts.dense = layer_parameter_count(model, LayerKind::dense, tp, ep, etp);
    if (model.moe) counts.mixture = layer_parameter_count(model, LayerKind::moe, tp, ep, etp);
    if (model.mtp_layers > 0) counts.mtp = mtp_layer_parameter_count(model, tp, ep, etp);
    counts.embedding = embedding_parameter_count(model, tp);
    counts.head = head_parameter_count(model, tp, false);
    counts.head_with_copy = head_parameter_count(model, tp, true);
    return counts;
}

}  // namespace mgplan::simulator
