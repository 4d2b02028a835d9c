#include "model/layers/recurrent_block.hpp"

#include <utility>

#include "model/ops/elementwise.hpp"
#include "model/ops/linear_recurrence.hpp"

namespace mgplan::model {
namespace {

/// A row of the projection holds the branch that gates, then the one that is convolved.
Columns gating_half(const Tensor& projected) {
    return {0, projected.shape()[1] / 2};
}
Columns recurring_half(const Tensor& projected) {
    return {projected.shape()[1] / 2, projected.shape()[1] / 2};
}

}  // namespace

RecurrentBlock::RecurrentBlock(const GatedLinearRecurrence& /*mixer*/, const LayerSite& site)
    : ends_(site, "mixer.in_proj"),
      conv_weight_(site.weights.at(site.prefix + "mixer.conv1d_weight")),
      conv_bias_(site.weights.at(site.prefix + "mixer.conv1d_bias")),
      input_gate_(site.weights.at(site.prefix + "mixer.input_gate.weight")),
      input_gate_bias_(site.weights.at(site.prefix + "mixer.input_gate.bias")),
      decay_gate_(site.weights.at(site.prefix + "mixer.decay_gate.weight")),
      decay_gate_bias_(site.weights.at(site.prefix + "mixer.decay_gate.bias")),
      decay_(site.weights.at(site.prefix + "mixer.decay")),
      projection_(site.weights.at(site.prefix + "mixer.in_proj.weight"), site.weights.at(site.prefix + "mixer.in_proj.bias")),
      output_(site.weights.at(site.prefix + "mixer.out_proj.weight"), site.weights.at(site.prefix + "mixer.out_proj.bias")) {}

Tensor RecurrentBlock::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.projected = projection_.forward(context, ends_.enter(context, x, saved));
    saved.convolved = plain_conv(saved.projected, recurring_half(saved.projected), conv_weight_.value, conv_bias_.value, microbatch.batch);
    saved.input_gates = block_products(saved.convolved, input_gate_.value, input_gate_bias_.value);
    saved.decay_gates = block_products(saved.convolved, decay_gate_.value, decay_gate_bias_.value);
    saved.recurred = linear_recurrence(saved.convolved, saved.input_gates, saved.decay_gates, decay_.value);
    saved.gated = gated_by_gelu(saved.recurred, saved.projected, gating_half(saved.projected));
    return ends_.leave(context, microbatch, output_.forward(context, saved.gated), x, saved);
}

Tensor RecurrentBlock::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_gated = output_.backward(context, ends_.backward_into(context, microbatch, dy, saved), saved.gated);
    saved.gated = {};
    Tensor d_projected = context.device->empty(saved.projected.shape(), saved.projected.dtype(), MemoryCategory::activations,
                                               "gradient of the mixer's projection");
    Tensor d_recurred = gated_by_gelu_backward(d_gated, saved.recurred, saved.projected, gating_half(saved.projected), d_projected);
    d_gated = {};
    RecurrenceGradients gradients = linear_recurrence_backward(d_recurred, saved.recurred, saved.convolved, saved.input_gates,
                                                               saved.decay_gates, decay_.value, decay_.gradient);
    d_recurred = saved.recurred = saved.input_gates = saved.decay_gates = {};
    Tensor d_convolved = std::move(gradients.x);
    add(block_products_backward(gradients.input_gates, saved.convolved, input_gate_.value, input_gate_.gradient, input_gate_bias_.gradient),
        d_convolved);
    gradients.input_gates = {};
    add(block_products_backward(gradients.decay_gates, saved.convolved, decay_gate_.value, decay_gate_.gradient, decay_gate_bias_.gradient),
        d_convolved);
    gradients.decay_gates = saved.convolved = {};
    plain_conv_backward(d_convolved, saved.projected, recurring_half(saved.projected), conv_weight_.value, d_projected,
                        conv_weight_.gradient, conv_bias_.gradient);
    d_convolved = saved.projected = {};
    Tensor dx = ends_.backward_out(context, dy, projection_.backward(context, d_projected, saved.normed), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
