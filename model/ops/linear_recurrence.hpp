#pragma once
// Ops of Griffin's recurrent block (arXiv 2402.19427, section 2.4): a plain causal convolution, gates that are products by
// blocks, a recurrence of one value a channel, and a gate of its output. Implemented for shapes alone: no device here computes them
// (layers_known_of_shapes()). Rows are places of the sequence, of each place the sequences of a microbatch.

#include "model/device/tensor.hpp"
#include "model/ops/causal_conv.hpp"

namespace mgplan::model {

/// causal_conv() without the SiLU after the convolution: (rows, channels.width).
[[nodiscard]] Tensor plain_conv(const Tensor& x, Columns channels, const Tensor& weight, const Tensor& bias, std::int64_t batch);
/// Writes the gradient of x to the same columns of dx, which has x's shape; adds to those of weight and bias.
void plain_conv_backward(const Tensor& dy, const Tensor& x, Columns channels, const Tensor& weight, const Tensor& dx,
                         const Tensor& weight_gradient, const Tensor& bias_gradient);

/// x (rows, blocks · in) times weight (blocks, out, in), block by block, plus bias (blocks · out), which may be undefined: (rows,
/// blocks · out).
[[nodiscard]] Tensor block_products(const Tensor& x, const Tensor& weight, const Tensor& bias);
/// The gradient of x; adds to those of weight and bias.
[[nodiscard]] Tensor block_products_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Tensor& weight_gradient,
                                             const Tensor& bias_gradient);

/// With a_t = exp(-8 softplus(decay) σ(decay_gate_t)): h_t = a_t h_(t-1) + sqrt(1 - a_t²) σ(input_gate_t) x_t. All (rows, channels), but
/// for decay (channels). Gates are raw.
[[nodiscard]] Tensor linear_recurrence(const Tensor& x, const Tensor& input_gates, const Tensor& decay_gates, const Tensor& decay);
struct RecurrenceGradients {
    Tensor x, input_gates, decay_gates;
};
/// `h`: the forward's result. Adds to the gradient of decay.
[[nodiscard]] RecurrenceGradients linear_recurrence_backward(const Tensor& dh, const Tensor& h, const Tensor& x, const Tensor& input_gates,
                                                             const Tensor& decay_gates, const Tensor& decay, const Tensor& decay_gradient);

/// h · gelu(z), z columns of `gates`.
[[nodiscard]] Tensor gated_by_gelu(const Tensor& h, const Tensor& gates, Columns z);
/// The gradient of h; writes that of z to the same columns of d_gates.
[[nodiscard]] Tensor gated_by_gelu_backward(const Tensor& dy, const Tensor& h, const Tensor& gates, Columns z, const Tensor& d_gates);

}  // namespace mgplan::model
