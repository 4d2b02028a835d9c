#include "model/layers/attention_beside_mamba.hpp"

#include <utility>

#include "model/ops/elementwise.hpp"

namespace mgplan::model {

AttentionBesideMamba::AttentionBesideMamba(const ModelSpec& model, const LayerPart& part, const WeightTable& weights,
                                           const std::string& prefix, std::int64_t layer, EnumSet<RecomputeModule> recompute)
    : model_(model),
      // The norm of both branches is named as the one in front of attention alone.
      ends_(model, weights, prefix + "self_attention.linear_qkv", layer, recompute),
      attention_(model, weights, prefix, layer, recompute),
      state_(model, part, weights, prefix, layer, recompute) {}

Tensor AttentionBesideMamba::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Tensor y = attention_.branch(context, microbatch, ends_.enter(context, x, saved), saved.attention);
    if (model_.branch_multipliers.attention_output != 1) scale(y, model_.branch_multipliers.attention_output);
    add(state_.branch(context, microbatch, saved.normed, saved.state), y);
    return ends_.leave(context, microbatch, y, x, saved);
}

Tensor AttentionBesideMamba::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                      Saved& saved) const {
    Tensor d_sum = ends_.backward_into(context, microbatch, dy, saved);
    Tensor d_normed = state_.branch_backward(context, microbatch, d_sum, saved.normed, saved.state);
    saved.state = {};
    if (model_.branch_multipliers.attention_output != 1) {
        // A copy, for the residual path reads what came in.
        const Tensor scaled = context.device->empty(d_sum.shape(), d_sum.dtype(), MemoryCategory::activations, "scaled gradient");
        copy(d_sum, scaled);
        scale(scaled, model_.branch_multipliers.attention_output);
        d_sum = scaled;
    }
    add(attention_.branch_backward(context, microbatch, std::move(d_sum), saved.normed, saved.attention), d_normed);
    Tensor dx = ends_.backward_out(context, dy, std::move(d_normed), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
