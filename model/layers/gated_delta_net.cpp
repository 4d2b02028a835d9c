#include "model/layers/gated_delta_net.hpp"

#include <utility>

#include "model/ops/causal_conv.hpp"
#include "model/ops/gated_norm.hpp"
#include "plan/model/layer_parts.hpp"

namespace mgplan::model {
namespace {

/// The blocks of a row of the projection: q, k and v, which the convolution sees, then z, the raw strengths, the raw decays.
Columns mixed_columns(const DeltaRuleSizes& sizes) {
    return {0, sizes.width()};
}
Columns output_gate_columns(const DeltaRuleSizes& sizes) {
    return {sizes.width(), sizes.values()};
}

}  // namespace

GatedNormOptions GatedDeltaNet::norm_options(const RankContext& context) const {
    return {.group = value_dim_, .gate_first = false, .epsilon = norm_epsilon_ > 0 ? norm_epsilon_ : context.norm_epsilon};
}

GatedDeltaNet::GatedDeltaNet(const ModelSpec& model, const LayerPart& part, const WeightTable& weights, const std::string& prefix,
                             std::int64_t layer, EnumSet<RecomputeModule> recompute)
    : key_heads_(part_size(part, "key_heads")),
      value_heads_(part_size(part, "value_heads")),
      key_dim_(part_size(part, "key_dim")),
      value_dim_(part_size(part, "value_dim")),
      strength_(part_size(part, "strength")),
      norm_epsilon_(model.state_norm_epsilon),
      ends_(model, weights, prefix + "self_attention.in_proj", layer, recompute),
      conv_weight_(weights.at(prefix + "self_attention.conv1d.weight")),
      step_bias_(weights.at(prefix + "self_attention.dt_bias")),
      log_decay_(weights.at(prefix + "self_attention.A_log")),
      gated_norm_weight_(weights.at(prefix + "self_attention.out_norm.weight")),
      projection_(weights.at(prefix + "self_attention.in_proj.weight"), {}),
      output_(weights.at(prefix + "self_attention.out_proj.weight"), {}) {}

DeltaRuleSizes GatedDeltaNet::sizes_of(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& projected) const {
    const std::int64_t tp = context.tp->size();
    return {.places = projected.shape()[0] / microbatch.batch,
            .batch = microbatch.batch,
            .key_heads = key_heads_ / tp,
            .value_heads = value_heads_ / tp,
            .key_dim = key_dim_,
            .value_dim = value_dim_,
            .strength = strength_};
}

DeltaRuleInputs GatedDeltaNet::rule_inputs(const Saved& saved, const DeltaRuleSizes& sizes) const {
    const std::int64_t gates = sizes.width() + sizes.values();
    return {.mixed = saved.convolved,
            .projected = saved.projected,
            .beta_begin = gates,
            .decay_begin = gates + sizes.value_heads,
            .step_bias = step_bias_.value,
            .log_decay = log_decay_.value};
}

Tensor GatedDeltaNet::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.projected = projection_.forward(context, ends_.enter(context, x, saved));
    const DeltaRuleSizes sizes = sizes_of(context, microbatch, saved.projected);
    saved.convolved = causal_conv(saved.projected, mixed_columns(sizes), conv_weight_.value, {}, microbatch.batch);
    saved.attended = delta_rule(rule_inputs(saved, sizes), sizes);
    saved.gated = gated_norm(saved.attended, saved.projected, output_gate_columns(sizes), gated_norm_weight_.value, norm_options(context),
                             saved.inverse_deviation);
    return ends_.leave(context, microbatch, output_.forward(context, saved.gated), x, saved);
}

Tensor GatedDeltaNet::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    // Each tensor goes as soon as it was read for the last time, as autograd frees it.
    Tensor d_gated = output_.backward(context, ends_.backward_into(context, microbatch, dy, saved), saved.gated);
    saved.gated = {};
    const DeltaRuleSizes sizes = sizes_of(context, microbatch, saved.projected);
    // The three ops below write all columns of it between them.
    Tensor d_projected = context.device->empty(saved.projected.shape(), saved.projected.dtype(), MemoryCategory::activations,
                                               "gradient of the delta net's projection");
    Tensor d_attended = gated_norm_backward(d_gated, saved.attended, saved.projected, output_gate_columns(sizes), gated_norm_weight_.value,
                                            saved.inverse_deviation, norm_options(context), d_projected, gated_norm_weight_.gradient);
    d_gated = {};
    saved.attended = saved.inverse_deviation = {};
    Tensor d_convolved =
        delta_rule_backward(d_attended, rule_inputs(saved, sizes), sizes, d_projected, step_bias_.gradient, log_decay_.gradient);
    d_attended = {};
    saved.convolved = {};
    causal_conv_backward(d_convolved, saved.projected, mixed_columns(sizes), conv_weight_.value, {}, microbatch.batch, d_projected,
                         conv_weight_.gradient, {});
    d_convolved = {};
    saved.projected = {};
    Tensor d_normed = projection_.backward(context, d_projected, saved.normed);
    d_projected = {};
    Tensor dx = ends_.backward_out(context, dy, std::move(d_normed), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
