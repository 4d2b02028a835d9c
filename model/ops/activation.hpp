#pragma once
// The non-linearity between the two products of an MLP.

#include "model/device/tensor.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan::model {

/// Plain: y = f(x), same shape. Gated: x (rows, 2n) holds gate and value side by side, y (rows, n) = f(gate) · value
/// (SwiGLU, arXiv 2002.05202). GELU in its tanh form.
[[nodiscard]] Tensor activation(const Tensor& x, Activation kind, bool gated);
[[nodiscard]] Tensor activation_backward(const Tensor& dy, const Tensor& x, Activation kind, bool gated);

/// The same with every row of y scaled by a factor (rows) in fp32: expert outputs weighted by router probabilities.
[[nodiscard]] Tensor weighted_activation(const Tensor& x, const Tensor& row_weights, Activation kind, bool gated);
/// Returns dx; writes the gradient of the row weights to d_row_weights (rows), fp32.
[[nodiscard]] Tensor weighted_activation_backward(const Tensor& dy, const Tensor& x, const Tensor& row_weights, Activation kind, bool gated,
                                                  Tensor& d_row_weights);

}  // namespace mgplan::model
