#include "model/layers/mamba_mixer.hpp"

#include <algorithm>
#include <utility>

#include "model/ops/elementwise.hpp"
#include "model/ops/gated_norm.hpp"

namespace mgplan::model {
namespace {

/// The blocks of a row of the projection: z, then x, B and C, which the convolution sees, then the raw steps. Exchanged ones have no z.
Columns gate_columns(const StateSpaceSizes& sizes) {
    return {0, sizes.inner()};
}
Columns convolved_columns(const StateSpaceSizes& sizes, bool exchanged) {
    return {exchanged ? 0 : sizes.inner(), sizes.width()};
}

/// Returns the exchange of a scan's output between heads and sequence.
ColumnExchange exchange_of_output(const RankContext& context, const MicrobatchContext& microbatch, const StateSpaceSizes& own) {
    return {context, microbatch, {{.begin = 0, .width = own.inner(), .shares = context.cp->size()}}};
}

GatedNormOptions gated_norm_options(const RankContext& context, const StateSpaceSizes& sizes) {
    return {.group = sizes.inner() / sizes.groups, .gate_first = true, .epsilon = context.norm_epsilon};
}

}  // namespace

MambaMixer::MambaMixer(const Mamba2& mixer, const LayerSite& site, const MambaMultipliers& multipliers)
    : mixer_(mixer),
      multipliers_(multipliers),
      ends_(site, "mixer.in_proj"),
      conv_weight_(site.weights.at(site.prefix + "mixer.conv1d_weight")),
      conv_bias_(site.weights.at(site.prefix + "mixer.conv1d_bias")),
      step_bias_(site.weights.at(site.prefix + "mixer.dt_bias")),
      log_decay_(site.weights.at(site.prefix + "mixer.A_log")),
      skip_(site.weights.at(site.prefix + "mixer.D")),
      gated_norm_weight_(site.weights.find(site.prefix + "mixer.norm.weight")),
      projection_(site, "mixer.in_proj"),
      output_(site, "mixer.out_proj") {}

StateSpaceSizes MambaMixer::sizes_of(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows, int cp) const {
    const std::int64_t parts = context.tp->size() * cp;
    return {.places = rows / microbatch.batch,
            .batch = microbatch.batch,
            .heads = mixer_.heads / parts,
            .head_dim = mixer_.inner_width / mixer_.heads,
            .groups = std::max<std::int64_t>(mixer_.groups / parts, 1),
            .state = mixer_.state_size};
}

std::optional<ColumnExchange> MambaMixer::exchange_of(const RankContext& context, const MicrobatchContext& microbatch) const {
    const std::int64_t ranks = context.cp->size();
    if (ranks == 1) return std::nullopt;
    const StateSpaceSizes own = sizes_of(context, microbatch, 0, 1);
    const std::int64_t inner = own.inner(), maps = own.groups * own.state, groups = std::min(own.groups, ranks);
    return ColumnExchange(context, microbatch,
                          {{.begin = inner, .width = inner, .shares = ranks},
                           {.begin = 2 * inner, .width = maps, .shares = groups},
                           {.begin = 2 * inner + maps, .width = maps, .shares = groups},
                           {.begin = 2 * inner + 2 * maps, .width = own.heads, .shares = ranks}});
}

StateSpaceInputs MambaMixer::scan_inputs(const Tensor& projected, const StateSpaceSizes& sizes, std::int64_t batch,
                                         const ColumnExchange* exchange) const {
    const Columns convolved = convolved_columns(sizes, exchange != nullptr);
    const auto of_heads = [&](const Weight& weight) { return exchange != nullptr ? exchange->heads(weight.value) : weight.value; };
    return {.mixed = conv_of(exchange).forward(projected, convolved, batch),
            .projected = projected,
            .step_begin = convolved.begin + convolved.width,
            .step_bias = of_heads(step_bias_),
            .log_decay = of_heads(log_decay_),
            .skip = of_heads(skip_)};
}

void MambaMixer::scale_blocks(const Tensor& projected, const StateSpaceSizes& sizes) const {
    const MambaMultipliers& by = multipliers_;
    const std::int64_t inner = sizes.inner(), maps = sizes.groups * sizes.state;
    std::int64_t begin = 0;
    for (const auto& [width, factor] :
         {std::pair{inner, by.gate}, {inner, by.input}, {maps, by.write}, {maps, by.read}, {sizes.heads, by.step}}) {
        if (factor != 1) scale_columns(projected, begin, width, factor);
        begin += width;
    }
}

Tensor MambaMixer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Tensor y = branch(context, microbatch, ends_.enter(context, x, saved), saved);
    return ends_.leave(context, microbatch, y, x, saved, projection_.reads_input(saved.into));
}

Tensor MambaMixer::branch(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed, Saved& saved) const {
    saved.projected = projection_.forward(context, normed, &saved.into);
    const StateSpaceSizes own = sizes_of(context, microbatch, saved.projected.shape()[0], 1);
    scale_blocks(saved.projected, own);
    if (const auto exchange = exchange_of(context, microbatch)) {
        saved.gates = columns(saved.projected, 0, own.inner());
        saved.projected = exchange->to_heads(saved.projected);
        const StateSpaceSizes sizes = sizes_of(context, microbatch, saved.projected.shape()[0], context.cp->size());
        const Tensor by_heads = state_space_scan(scan_inputs(saved.projected, sizes, microbatch.batch, &*exchange), sizes);
        saved.scanned = context.device->empty(saved.gates.shape(), by_heads.dtype(), MemoryCategory::activations, kScannedBySequence);
        exchange_of_output(context, microbatch, own).to_sequence(by_heads, saved.scanned);
    } else {
        saved.scanned = state_space_scan(scan_inputs(saved.projected, own, microbatch.batch, nullptr), own);
    }
    saved.gated = gated_norm(saved.scanned, saved.gates.defined() ? saved.gates : saved.projected, gate_columns(own),
                             gated_norm_weight_.value, gated_norm_options(context, own), saved.inverse_deviation);
    // In front of the projection, where it is as wide on every rank: its gradients are then those of the scaled product.
    if (multipliers_.output != 1) scale(saved.gated, multipliers_.output);
    Tensor y = output_.forward(context, saved.gated, &saved.out);
    if (!output_.reads_input()) saved.gated = {};
    return y;
}

Tensor MambaMixer::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    Tensor dy_of_branch = ends_.backward_into(context, microbatch, dy, saved, projection_.reads_input(saved.into));
    Tensor dx = ends_.backward_out(context, dy, branch_backward(context, microbatch, std::move(dy_of_branch), saved.normed, saved), saved);
    saved = {};
    return dx;
}

Tensor MambaMixer::branch_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, const Tensor& normed,
                                   Saved& saved) const {
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_gated = output_.backward(context, dy, saved.gated, &saved.out);
    dy = {};
    saved.gated = {};
    if (multipliers_.output != 1) scale(d_gated, multipliers_.output);
    const std::optional<ColumnExchange> exchange = exchange_of(context, microbatch);
    const ColumnExchange* const exchanged = exchange ? &*exchange : nullptr;
    const std::int64_t rows = saved.scanned.shape()[0];
    const StateSpaceSizes own = sizes_of(context, microbatch, rows, 1);
    const StateSpaceSizes sizes = exchange ? sizes_of(context, microbatch, saved.projected.shape()[0], context.cp->size()) : own;
    Tensor gates = exchange ? saved.gates : saved.projected;
    // The three ops below write all columns of it between them.
    Tensor d_projected = context.device->empty(saved.projected.shape(), saved.projected.dtype(), MemoryCategory::activations,
                                               "gradient of the mixer's projection");
    Tensor d_gates =
        exchange ? context.device->empty(gates.shape(), gates.dtype(), MemoryCategory::activations, "gradient of the gates") : d_projected;
    Tensor d_scanned =
        gated_norm_backward(d_gated, saved.scanned, gates, gate_columns(own), gated_norm_weight_.value, saved.inverse_deviation,
                            gated_norm_options(context, own), d_gates, gradient_or_room(gated_norm_weight_));
    d_gated = {};
    saved.scanned = saved.inverse_deviation = saved.gates = gates = {};
    if (exchange) d_scanned = exchange_of_output(context, microbatch, own).to_heads(d_scanned);
    const auto of_heads = [&](const Weight& weight) {
        const Tensor gradient = gradient_or_room(weight);
        return exchange ? exchange->heads(gradient) : gradient;
    };
    Tensor d_convolved;
    {
        const StateSpaceInputs inputs = scan_inputs(saved.projected, sizes, microbatch.batch, exchanged);
        d_convolved =
            state_space_scan_backward(d_scanned, inputs, sizes, d_projected, {of_heads(step_bias_), of_heads(log_decay_), of_heads(skip_)});
    }
    d_scanned = {};
    conv_of(exchanged).backward(d_convolved, saved.projected, convolved_columns(sizes, exchange.has_value()), microbatch.batch,
                                d_projected);
    d_convolved = {};
    saved.projected = {};
    if (exchange) {
        const Tensor by_heads = std::exchange(
            d_projected, context.device->empty({rows, 2 * own.inner() + 2 * own.groups * own.state + own.heads}, d_projected.dtype(),
                                               MemoryCategory::activations, "gradient of the mixer's projection"));
        set_columns(d_gates, d_projected, 0);
        exchange->to_sequence(by_heads, d_projected);
    }
    d_gates = {};
    scale_blocks(d_projected, own);
    return projection_.backward(context, d_projected, normed, &saved.into);
}

}  // namespace mgplan::model
