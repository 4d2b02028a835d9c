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
      norm_weight_(weights.at(prefix + "self_attention.linear_qkv.layer_norm_weight")),
      norm_bias_(weights.find(prefix + "self_attention.linear_qkv.layer_norm_bias")),
      attention_(model, weights, prefix, layer, recompute),
      state_(model, part, weights, prefix, layer, recompute) {}

Tensor AttentionBesideMamba::normalised(const RankContext& context, const Tensor& x, NormStatistics& statistics) const {
    return norm(x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, statistics);
}

Tensor AttentionBesideMamba::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.x = x;
    saved.normed = normalised(context, x, saved.statistics);
    const Tensor y = attention_.branch(context, microbatch, saved.normed, saved.attention);
    if (model_.branch_multipliers.attention_output != 1) scale(y, model_.branch_multipliers.attention_output);
    add(state_.branch(context, microbatch, saved.normed, saved.state), y);
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = Tensor();
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::attention, y, x);
}

Tensor AttentionBesideMamba::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                      Saved& saved) const {
    if (!saved.normed.defined()) {
        const Range range(*context.device, "recompute");
        NormStatistics again;
        saved.normed = normalised(context, saved.x, again);
    }
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
    Tensor dx = norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, model_.normalization, norm_weight_.gradient,
                              norm_bias_.gradient);
    d_normed = {};
    add(dy, dx);  // the residual path
    saved = {};
    return dx;
}

}  // namespace mgplan::model
