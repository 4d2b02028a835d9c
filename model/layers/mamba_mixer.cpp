#include "model/layers/mamba_mixer.hpp"

#include <utility>

#include "model/ops/elementwise.hpp"
#include "model/ops/gated_norm.hpp"
#include "plan/model/layer_parts.hpp"

namespace mgplan::model {
namespace {

/// The blocks of a row of the projection: z, then x, B and C, which the convolution sees, then the raw steps.
Columns gate_columns(const StateSpaceSizes& sizes) {
    return {0, sizes.inner()};
}
Columns convolved_columns(const StateSpaceSizes& sizes) {
    return {sizes.inner(), sizes.width()};
}

GatedNormOptions gated_norm_options(const RankContext& context, const StateSpaceSizes& sizes) {
    return {.group = sizes.inner() / sizes.groups, .gate_first = true, .epsilon = context.norm_epsilon};
}

}  // namespace

MambaMixer::MambaMixer(const ModelSpec& model, const LayerPart& part, const WeightTable& weights, const std::string& prefix,
                       std::int64_t layer, EnumSet<RecomputeModule> recompute)
    : model_(model),
      heads_(part_size(part, "heads")),
      head_dim_(part_size(part, "inner") / heads_),
      groups_(part_size(part, "groups")),
      state_(part_size(part, "state")),
      ends_(model, weights, prefix + "mixer.in_proj", layer, recompute),
      conv_weight_(weights.at(prefix + "mixer.conv1d_weight")),
      conv_bias_(weights.at(prefix + "mixer.conv1d_bias")),
      step_bias_(weights.at(prefix + "mixer.dt_bias")),
      log_decay_(weights.at(prefix + "mixer.A_log")),
      skip_(weights.at(prefix + "mixer.D")),
      gated_norm_weight_(weights.find(prefix + "mixer.norm.weight")),
      projection_(weights.at(prefix + "mixer.in_proj.weight"), {}),
      output_(weights.at(prefix + "mixer.out_proj.weight"), {}) {}

StateSpaceSizes MambaMixer::sizes_of(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& projected) const {
    const std::int64_t tp = context.tp->size();
    return {.places = projected.shape()[0] / microbatch.batch,
            .batch = microbatch.batch,
            .heads = heads_ / tp,
            .head_dim = head_dim_,
            .groups = groups_ / tp,
            .state = state_};
}

StateSpaceInputs MambaMixer::scan_inputs(const Tensor& projected, const StateSpaceSizes& sizes, std::int64_t batch) const {
    return {.mixed = causal_conv(projected, convolved_columns(sizes), conv_weight_.value, conv_bias_.value, batch),
            .projected = projected,
            .step_begin = sizes.inner() + sizes.width(),
            .step_bias = step_bias_.value,
            .log_decay = log_decay_.value,
            .skip = skip_.value};
}

void MambaMixer::scale_blocks(const Tensor& projected, const StateSpaceSizes& sizes) const {
    const BranchMultipliers& by = model_.branch_multipliers;
    const std::int64_t inner = sizes.inner(), maps = sizes.groups * sizes.state;
    std::int64_t begin = 0;
    for (const auto& [width, factor] : {std::pair{inner, by.state_gate},
                                        {inner, by.state_input},
                                        {maps, by.state_write},
                                        {maps, by.state_read},
                                        {sizes.heads, by.state_step}}) {
        if (factor != 1) scale_columns(projected, begin, width, factor);
        begin += width;
    }
}

Tensor MambaMixer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Tensor y = branch(context, microbatch, ends_.enter(context, x, saved), saved);
    return ends_.leave(context, microbatch, y, x, saved);
}

Tensor MambaMixer::branch(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed, Saved& saved) const {
    saved.projected = projection_.forward(context, normed);
    const StateSpaceSizes sizes = sizes_of(context, microbatch, saved.projected);
    scale_blocks(saved.projected, sizes);
    saved.scanned = state_space_scan(scan_inputs(saved.projected, sizes, microbatch.batch), sizes);
    saved.gated = gated_norm(saved.scanned, saved.projected, gate_columns(sizes), gated_norm_weight_.value,
                             gated_norm_options(context, sizes), saved.inverse_deviation);
    // In front of the projection, where it is as wide on every rank: its gradients are then those of the scaled product.
    if (model_.branch_multipliers.state_output != 1) scale(saved.gated, model_.branch_multipliers.state_output);
    return output_.forward(context, saved.gated);
}

Tensor MambaMixer::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    Tensor dy_of_branch = ends_.backward_into(context, microbatch, dy, saved);
    Tensor dx = ends_.backward_out(context, dy, branch_backward(context, microbatch, std::move(dy_of_branch), saved.normed, saved), saved);
    saved = {};
    return dx;
}

Tensor MambaMixer::branch_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, const Tensor& normed,
                                   Saved& saved) const {
    // Each tensor goes as soon as it was read for the last time, as autograd frees it.
    Tensor d_gated = output_.backward(context, dy, saved.gated);
    dy = {};
    saved.gated = {};
    if (model_.branch_multipliers.state_output != 1) scale(d_gated, model_.branch_multipliers.state_output);
    const StateSpaceSizes sizes = sizes_of(context, microbatch, saved.projected);
    // The three ops below write all columns of it between them.
    Tensor d_projected = context.device->empty(saved.projected.shape(), saved.projected.dtype(), MemoryCategory::activations,
                                               "gradient of the mixer's projection");
    Tensor d_scanned =
        gated_norm_backward(d_gated, saved.scanned, saved.projected, gate_columns(sizes), gated_norm_weight_.value, saved.inverse_deviation,
                            gated_norm_options(context, sizes), d_projected, gated_norm_weight_.gradient);
    d_gated = {};
    saved.scanned = saved.inverse_deviation = {};
    Tensor d_convolved;
    {
        const StateSpaceInputs inputs = scan_inputs(saved.projected, sizes, microbatch.batch);
        d_convolved =
            state_space_scan_backward(d_scanned, inputs, sizes, d_projected, {step_bias_.gradient, log_decay_.gradient, skip_.gradient});
    }
    d_scanned = {};
    causal_conv_backward(d_convolved, saved.projected, convolved_columns(sizes), conv_weight_.value, conv_bias_.value, microbatch.batch,
                         d_projected, conv_weight_.gradient, conv_bias_.gradient);
    d_convolved = {};
    saved.projected = {};
    scale_blocks(d_projected, sizes);
    return projection_.backward(context, d_projected, normed);
}

}  // namespace mgplan::model
