#include "simulator/layers/layer_costs.hpp"

#include <algorithm>

#include "simulator/layers/attention.hpp"
#include "simulator/layers/ends.hpp"
#include "simulator/layers/mlp.hpp"
#include "simulator/layers/quantisation.hpp"

namespace mgplan::simulator {

LayerCosts layer_costs(const Shard& shard) {
    const ModelSpec& model = shard.model();
    LayerCosts costs;
    const PieceCost attention = costs.attention = attention_cost(shard);
    const PieceCost windowed = model.sliding_window > 0 ? attention_cost(shard, model.sliding_window) : attention;
    const bool has_mixture = model.moe.has_value();
    const bool has_dense = !has_mixture || std::find(model.moe_layers.begin(), model.moe_layers.end(), false) != model.moe_layers.end();
    if (has_dense) {
        costs.dense = attention;
        costs.dense_mlp = dense_mlp_cost(shard);
        costs.dense += costs.dense_mlp;
        costs.windowed_dense = windowed;
        costs.windowed_dense += costs.dense_mlp;
    }
    if (has_mixture) {
        costs.mixture = attention;
        costs.experts = mixture_cost(shard);
        costs.router = norm_and_residual_cost(shard);
        costs.router += router_cost(shard);
        costs.mixture += costs.experts;
        costs.windowed_mixture = windowed;
        costs.windowed_mixture += costs.experts;
    }
    costs.embedding = embedding_cost(shard);
    costs.head = head_cost(shard);
    costs.boundary = shard.tokens_outside * model.hidden * shard.element;
    if (model.mtp_layers > 0) {
        // Two norms, the 2h -> h projection, a decoder layer of the last kind (arXiv 2412.19437, 2.2).
        const bool mixture = has_mixture && model.moe_layers.back();
        if (model.window_of_layer(model.layers) > 0)
            costs.mtp = mixture ? costs.windowed_mixture : costs.windowed_dense;
        else
            costs.mtp = mixture ? costs.mixture : costs.dense;
        PieceCost projection;
        const double width = static_cast<double>(model.hidden) / static_cast<double>(shard.tp);
        projection.forward = shard.kernels->gemm(shard.tokens, model.hidden / shard.tp, 2 * model.hidden);
        projection.weight_gradient = shard.kernels->weight_gradient(2 * model.hidden, model.hidden / shard.tp, shard.tokens);
        projection.backward = shard.kernels->gemm(shard.tokens, 2 * model.hidden, model.hidden / shard.tp) + projection.weight_gradient;
        projection.forward_flops = 4.0 * static_cast<double>(shard.tokens) * static_cast<double>(model.hidden) * width;
        projection.kernels_forward = 4;
        projection.kernels_backward = 8;
        projection += quantise_column_parallel(shard, LinearInput::plain, 2 * model.hidden, model.hidden / shard.tp);
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
