#include "model/layers/attention_beside_mamba.hpp"

#include <utility>

#include "model/layers/residual.hpp"
#include "model/ops/elementwise.hpp"

namespace mgplan::model {

AttentionBesideMamba::AttentionBesideMamba(const ModelSpec& model, const LayerPart& part, const WeightTable& weights,
                                           const std::string& prefix, std::int64_t layer, EnumSet<RecomputeModule> recompute)
    : model_(model),
      layer_(layer),
      recompute_(recompute),
      // Both branches' norm bears the name that it has in front of attention alone.
      norm_(model, weights.at(prefix + "self_attention.linear_qkv.layer_norm_weight"),
            weights.find(prefix + "self_attention.linear_qkv.layer_norm_bias")),
      attention_(model, weights, prefix, layer, recompute),
      state_(model, part, weights, prefix, layer, recompute) {}

Tensor AttentionBesideMamba::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.normed = norm_.forward(context, x, saved.norm);
    const Tensor y = attention_.branch(context, microbatch, saved.normed, saved.attention);
    if (model_.branch_multipliers.attention_output != 1) scale(y, model_.branch_multipliers.attention_output);
    add(state_.branch(context, microbatch, saved.normed, saved.state), y);
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = Tensor();
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::attention, y, x);
}

Tensor AttentionBesideMamba::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                      Saved& saved) const {
    if (!saved.normed.defined()) saved.normed = norm_.again(context, saved.norm);
    Tensor d_sum = residual_backward(context, microbatch, model_, layer_, ResidualPlace::attention, dy);
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
    saved.normed = {};
    Tensor dx = norm_.backward(d_normed, saved.norm);
    d_normed = {};
    add(dy, dx);  // the residual path
    saved = {};
    return dx;
}

}  // namespace mgplan::model
