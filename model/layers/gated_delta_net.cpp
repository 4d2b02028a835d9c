#include "model/layers/gated_delta_net.hpp"

#include <optional>
#include <utility>

#include "model/ops/elementwise.hpp"
#include "model/ops/gated_norm.hpp"

namespace mgplan::model {
namespace {

/// The blocks of a row of the projection: q, k and v, which the convolution sees, then z, the raw strengths, the raw decays. Exchanged ones
/// have no z.
Columns mixed_columns(const DeltaRuleSizes& sizes) {
    return {0, sizes.width()};
}
/// Returns the columns of z, in the projection or alone.
Columns gates_of(const GatedDeltaNetSaved& saved, const DeltaRuleSizes& own) {
    return {saved.gates.defined() ? 0 : own.width(), own.values()};
}

/// Returns the exchange of the rule's output between heads and sequence.
ColumnExchange exchange_of_output(const RankContext& context, const MicrobatchContext& microbatch, const DeltaRuleSizes& own) {
    return {context, microbatch, {{.begin = 0, .width = own.values(), .shares = context.cp->size()}}};
}

}  // namespace

GatedNormOptions GatedDeltaNet::norm_options(const RankContext& context) const {
    return {
        .group = mixer_.value_dim, .gate_first = false, .epsilon = mixer_.norm_epsilon > 0 ? mixer_.norm_epsilon : context.norm_epsilon};
}

GatedDeltaNet::GatedDeltaNet(const mgplan::GatedDeltaNet& mixer, const LayerSite& site)
    : mixer_(mixer),
      ends_(site, "self_attention.in_proj"),
      conv_weight_(site.weights.at(site.prefix + "self_attention.conv1d.weight")),
      step_bias_(site.weights.at(site.prefix + "self_attention.dt_bias")),
      log_decay_(site.weights.at(site.prefix + "self_attention.A_log")),
      gated_norm_weight_(site.weights.at(site.prefix + "self_attention.out_norm.weight")),
      projection_(site, "self_attention.in_proj"),
      output_(site, "self_attention.out_proj") {}

DeltaRuleSizes GatedDeltaNet::sizes_of(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows, int cp) const {
    const std::int64_t parts = context.tp->size() * cp;
    return {.places = rows / microbatch.batch,
            .batch = microbatch.batch,
            .key_heads = mixer_.key_heads / parts,
            .value_heads = mixer_.value_heads / parts,
            .key_dim = mixer_.key_dim,
            .value_dim = mixer_.value_dim,
            .strength = mixer_.strength};
}

std::optional<ColumnExchange> GatedDeltaNet::exchange_of(const RankContext& context, const MicrobatchContext& microbatch) const {
    const std::int64_t ranks = context.cp->size();
    if (ranks == 1) return std::nullopt;
    const DeltaRuleSizes own = sizes_of(context, microbatch, 0, 1);
    const std::int64_t keys = own.key_heads * own.key_dim, values = own.values();
    return ColumnExchange(context, microbatch,
                          {{.begin = 0, .width = keys, .shares = ranks},
                           {.begin = keys, .width = keys, .shares = ranks},
                           {.begin = 2 * keys, .width = values, .shares = ranks},
                           {.begin = 2 * keys + 2 * values, .width = own.value_heads, .shares = ranks},
                           {.begin = 2 * keys + 2 * values + own.value_heads, .width = own.value_heads, .shares = ranks}});
}

DeltaRuleInputs GatedDeltaNet::rule_inputs(const Saved& saved, const DeltaRuleSizes& sizes, const ColumnExchange* exchange) const {
    const std::int64_t strengths = sizes.width() + (exchange != nullptr ? 0 : sizes.values());
    const auto of_heads = [&](const Weight& weight) { return exchange != nullptr ? exchange->heads(weight.value) : weight.value; };
    return {.mixed = saved.convolved,
            .projected = saved.projected,
            .beta_begin = strengths,
            .decay_begin = strengths + sizes.value_heads,
            .step_bias = of_heads(step_bias_),
            .log_decay = of_heads(log_decay_)};
}

Tensor GatedDeltaNet::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.projected = projection_.forward(context, ends_.enter(context, x, saved), &saved.into);
    const std::optional<ColumnExchange> exchange = exchange_of(context, microbatch);
    const ColumnExchange* const exchanged = exchange ? &*exchange : nullptr;
    const DeltaRuleSizes own = sizes_of(context, microbatch, saved.projected.shape()[0], 1);
    if (exchange) {
        saved.gates = columns(saved.projected, own.width(), own.width() + own.values());
        saved.projected = exchange->to_heads(saved.projected);
    }
    const DeltaRuleSizes sizes = sizes_of(context, microbatch, saved.projected.shape()[0], context.cp->size());
    saved.convolved = conv_of(exchanged).forward(saved.projected, mixed_columns(sizes), microbatch.batch);
    saved.attended = delta_rule(rule_inputs(saved, sizes, exchanged), sizes);
    if (exchange) {
        const Tensor by_heads = std::exchange(saved.attended, context.device->empty(saved.gates.shape(), saved.gates.dtype(),
                                                                                    MemoryCategory::activations, kAttendedBySequence));
        exchange_of_output(context, microbatch, own).to_sequence(by_heads, saved.attended);
    }
    saved.gated = gated_norm(saved.attended, exchange ? saved.gates : saved.projected, gates_of(saved, own), gated_norm_weight_.value,
                             norm_options(context), saved.inverse_deviation);
    const Tensor y = output_.forward(context, saved.gated, &saved.out);
    if (!output_.reads_input()) saved.gated = {};
    return ends_.leave(context, microbatch, y, x, saved, projection_.reads_input(saved.into));
}

Tensor GatedDeltaNet::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_gated = output_.backward(context, ends_.backward_into(context, microbatch, dy, saved, projection_.reads_input(saved.into)),
                                      saved.gated, &saved.out);
    saved.gated = {};
    const std::optional<ColumnExchange> exchange = exchange_of(context, microbatch);
    const ColumnExchange* const exchanged = exchange ? &*exchange : nullptr;
    const std::int64_t rows = saved.attended.shape()[0];
    const DeltaRuleSizes own = sizes_of(context, microbatch, rows, 1);
    const DeltaRuleSizes sizes = sizes_of(context, microbatch, saved.projected.shape()[0], context.cp->size());
    Tensor gates = exchange ? saved.gates : saved.projected;
    // The three ops below write all columns of it between them.
    Tensor d_projected = context.device->empty(saved.projected.shape(), saved.projected.dtype(), MemoryCategory::activations,
                                               "gradient of the delta net's projection");
    Tensor d_gates =
        exchange ? context.device->empty(gates.shape(), gates.dtype(), MemoryCategory::activations, "gradient of the gates") : d_projected;
    Tensor d_attended = gated_norm_backward(d_gated, saved.attended, gates, gates_of(saved, own), gated_norm_weight_.value,
                                            saved.inverse_deviation, norm_options(context), d_gates, gradient_or_room(gated_norm_weight_));
    d_gated = {};
    saved.attended = saved.inverse_deviation = saved.gates = gates = {};
    if (exchange) d_attended = exchange_of_output(context, microbatch, own).to_heads(d_attended);
    const auto of_heads = [&](const Weight& weight) {
        const Tensor gradient = gradient_or_room(weight);
        return exchange ? exchange->heads(gradient) : gradient;
    };
    Tensor d_convolved = delta_rule_backward(d_attended, rule_inputs(saved, sizes, exchanged), sizes, d_projected, of_heads(step_bias_),
                                             of_heads(log_decay_));
    d_attended = {};
    saved.convolved = {};
    conv_of(exchanged).backward(d_convolved, saved.projected, mixed_columns(sizes), microbatch.batch, d_projected);
    d_convolved = {};
    saved.projected = {};
    if (exchange) {
        const Tensor by_heads =
            std::exchange(d_projected, context.device->empty({rows, own.width() + own.values() + 2 * own.value_heads}, d_projected.dtype(),
                                                             MemoryCategory::activations, "gradient of the delta net's projection"));
        set_columns(d_gates, d_projected, own.width());
        exchange->to_sequence(by_heads, d_projected);
    }
    d_gates = {};
    Tensor d_normed = projection_.backward(context, d_projected, saved.normed, &saved.into);
    d_projected = {};
    Tensor dx = ends_.backward_out(context, dy, std::move(d_normed), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
