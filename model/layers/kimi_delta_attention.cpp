#include "model/layers/kimi_delta_attention.hpp"

#include <utility>

#include "model/ops/causal_conv.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gated_norm.hpp"

namespace mgplan::model {
namespace {

GatedNormOptions sigmoid_norm_options(const RankContext& context, const DeltaRuleSizes& sizes) {
    return {.group = sizes.value_dim, .gate_first = false, .epsilon = context.norm_epsilon, .sigmoid_gate = true};
}

/// The columns of a projection that the convolution reads: q, k and v. The raw strengths follow them.
Columns key_columns(const DeltaRuleSizes& sizes) {
    return {0, sizes.width()};
}

}  // namespace

KimiDeltaAttention::KimiDeltaAttention(const mgplan::KimiDeltaAttention& mixer, const LayerSite& site)
    : mixer_(mixer),
      ends_(site, "self_attention.in_proj"),
      conv_weight_(site.weights.at(site.prefix + "self_attention.conv1d.weight")),
      step_bias_(site.weights.at(site.prefix + "self_attention.dt_bias")),
      log_decay_(site.weights.at(site.prefix + "self_attention.A_log")),
      gated_norm_weight_(site.weights.at(site.prefix + "self_attention.out_norm.weight")),
      projection_(site.weights.at(site.prefix + "self_attention.in_proj.weight"), {}),
      decay_up_(site.weights.at(site.prefix + "self_attention.decay_up.weight"), {}),
      gate_up_(site.weights.at(site.prefix + "self_attention.gate_up.weight"), {}),
      decay_down_(site.weights.at(site.prefix + "self_attention.decay_down.weight")),
      gate_down_(site.weights.at(site.prefix + "self_attention.gate_down.weight")),
      output_(site.weights.at(site.prefix + "self_attention.out_proj.weight"), {}) {}

DeltaRuleSizes KimiDeltaAttention::sizes_of(const RankContext& context, const MicrobatchContext& microbatch,
                                            const Tensor& projected) const {
    const std::int64_t heads = mixer_.heads / context.tp->size();
    return {.places = projected.shape()[0] / microbatch.batch,
            .batch = microbatch.batch,
            .key_heads = heads,
            .value_heads = heads,
            .key_dim = mixer_.head_dim,
            .value_dim = mixer_.head_dim,
            .channel_decays = true};
}

DeltaRuleInputs KimiDeltaAttention::rule_inputs(const Saved& saved, const DeltaRuleSizes& sizes) const {
    return {.mixed = saved.convolved,
            .projected = saved.projected,
            .beta_begin = sizes.width(),
            .decay_begin = 0,
            .step_bias = step_bias_.value,
            .log_decay = log_decay_.value,
            .decays = saved.decays};
}

Tensor KimiDeltaAttention::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Tensor& normed = ends_.enter(context, x, saved);
    saved.projected = projection_.forward(context, normed);
    saved.decay_latent = decay_down_.forward(context, normed);
    saved.decays = decay_up_.forward(context, saved.decay_latent);
    saved.gate_latent = gate_down_.forward(context, normed);
    saved.gates = gate_up_.forward(context, saved.gate_latent);
    const DeltaRuleSizes sizes = sizes_of(context, microbatch, saved.projected);
    saved.convolved = causal_conv(saved.projected, key_columns(sizes), conv_weight_.value, {}, microbatch.batch);
    saved.attended = delta_rule(rule_inputs(saved, sizes), sizes);
    saved.gated = gated_norm(saved.attended, saved.gates, {0, sizes.values()}, gated_norm_weight_.value,
                             sigmoid_norm_options(context, sizes), saved.inverse_deviation);
    return ends_.leave(context, microbatch, output_.forward(context, saved.gated), x, saved);
}

Tensor KimiDeltaAttention::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    Tensor d_gated = output_.backward(context, ends_.backward_into(context, microbatch, dy, saved), saved.gated);
    saved.gated = {};
    Tensor dx = ends_.backward_out(context, dy, to_normed(context, microbatch, std::move(d_gated), saved), saved);
    saved = {};
    return dx;
}

Tensor KimiDeltaAttention::to_normed(const RankContext& context, const MicrobatchContext& microbatch, Tensor d_gated, Saved& saved) const {
    const DeltaRuleSizes sizes = sizes_of(context, microbatch, saved.projected);
    const auto gradient_of = [&](const Tensor& x, std::string_view name) {
        return context.device->empty(x.shape(), x.dtype(), MemoryCategory::activations, name);
    };
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_gates = gradient_of(saved.gates, "gradient of the output's gates");
    Tensor d_attended =
        gated_norm_backward(d_gated, saved.attended, saved.gates, {0, sizes.values()}, gated_norm_weight_.value, saved.inverse_deviation,
                            sigmoid_norm_options(context, sizes), d_gates, gated_norm_weight_.gradient);
    d_gated = saved.attended = saved.gates = saved.inverse_deviation = {};
    Tensor d_normed = gate_down_.backward(context, gate_up_.backward(context, d_gates, saved.gate_latent), saved.normed);
    d_gates = saved.gate_latent = {};
    // The rule and the convolution write all columns of the first between them.
    Tensor d_projected = gradient_of(saved.projected, "gradient of the mixer's projection");
    Tensor d_decays = gradient_of(saved.decays, "gradient of raw decays");
    Tensor d_convolved =
        delta_rule_backward(d_attended, rule_inputs(saved, sizes), sizes, d_projected, step_bias_.gradient, log_decay_.gradient, d_decays);
    d_attended = saved.convolved = saved.decays = {};
    causal_conv_backward(d_convolved, saved.projected, key_columns(sizes), conv_weight_.value, {}, microbatch.batch, d_projected,
                         conv_weight_.gradient, {});
    d_convolved = saved.projected = {};
    add(decay_down_.backward(context, decay_up_.backward(context, d_decays, saved.decay_latent), saved.normed), d_normed);
    d_decays = saved.decay_latent = {};
    add(projection_.backward(context, d_projected, saved.normed), d_normed);
    return d_normed;
}

}  // namespace mgplan::model
