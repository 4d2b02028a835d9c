#include "simulator/layers/mlp.hpp"
#include "simulator/layers/quantisation.hpp"

namespace mgplan::simulator {

PieceCost stream_norms_cost(const Shard& s) {
    PieceCost cost;
    const ModelSpec& model = s.model();
    const std::int64_t stream = s.tokens_outside * model.hidden * s.element;
    const double norm = s.kernels->memory_bound(static_cast<double>(2 * stream));
    const double norm_backward = s.kernels->memory_bound(static_cast<double>(3 * stream));
    for (const bool there : {model.pre_norms, model.post_norms}) {
        if (!there) continue;
        cost.forward += norm;
        cost.backward += norm_backward;
        cost.kernels_forward += 1;
        cost.kernels_backward += 2;
    }
    if (model.pre_norms && s.recomputes(RecomputeModule::layernorm)) cost.recompute += norm;
    return cost;
}

PieceCost residual_multiplier_cost(const Shard& s) {
    PieceCost cost;
    if (s.model().residual_multiplier == 1) return cost;
    const std::int64_t stream = s.tokens_outside * s.model().hidden * s.element;
    cost.forward = cost.backward = s.kernels->memory_bound(static_cast<double>(2 * stream));
    cost.kernels_forward = cost.kernels_backward = 1;
    return cost;
}

PieceCost norm_and_residual_cost(const Shard& s) {
    PieceCost cost = stream_norms_cost(s);
    const std::int64_t stream = s.tokens_outside * s.model().hidden * s.element;
    cost.forward += s.kernels->memory_bound(static_cast<double>(3 * stream));
    cost.backward += s.kernels->memory_bound(static_cast<double>(2 * stream));
    cost.kernels_forward += 1;
    cost.kernels_backward += 2;
    cost += residual_multiplier_cost(s);
    return cost;
}

PieceCost mlp_core_cost(const Shard& s, std::int64_t ffn, LinearInput input, bool recompute_all) {
    const ModelSpec& model = s.model();
    const std::int64_t width = ffn / s.tp;
    const std::int64_t first = model.gated_mlp ? 2 * width : width;
    PieceCost cost;
    const double up = s.kernels->gemm(s.tokens, first, model.hidden);
    const double up_input = s.kernels->gemm(s.tokens, model.hidden, first);
    const double up_weight = s.kernels->weight_gradient(first, model.hidden, s.tokens);
    const double down = s.kernels->gemm(s.tokens, model.hidden, width);
    const double down_input = s.kernels->gemm(s.tokens, width, model.hidden);
    const double down_weight = s.kernels->weight_gradient(model.hidden, width, s.tokens);
    const std::int64_t before = s.tokens * first * s.element, after = s.tokens * width * s.element;
    const double activation = s.kernels->memory_bound(static_cast<double>(before + after));
    cost.forward = up + activation + down;
    cost.backward = up_input + up_weight + down_input + down_weight + s.kernels->memory_bound(static_cast<double>(2 * before + after));
    cost += quantise_column_parallel(s, input, model.hidden, first);
    cost += quantise_row_parallel(s, LinearInput::activated, width, model.hidden);
    cost.weight_gradient = up_weight + down_weight;
    cost.kernels_forward = 4;
    cost.kernels_backward = 7;
    cost.forward_flops = 2.0 * static_cast<double>(s.tokens) * static_cast<double>(model.hidden) * static_cast<double>(first + width);

    const double gather = gather_operand_seconds(s, model.hidden), reduce = tp_reduce_seconds(s, model.hidden);
    cost.exposed_forward.tp = tp_exposed(s, gather, up) + tp_exposed(s, reduce, down);
    cost.exposed_backward.tp = tp_exposed(s, gather, down_input) + beside(s, gather, up_input) + tp_reduce_exposed(s, reduce, up_weight);

    if (recompute_all) {
        cost.recompute = cost.forward;
        cost.exposed_recompute = cost.exposed_forward;
        cost.recompute_flops = cost.forward_flops;
    }
    return cost;
}

PieceCost dense_mlp_cost(const Shard& s) {
    PieceCost cost = norm_and_residual_cost(s);
    cost += mlp_core_cost(s, s.model().ffn, LinearInput::normed, s.recomputes(RecomputeModule::mlp));
    return cost;
}

}  // namespace mgplan::simulator
