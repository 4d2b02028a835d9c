#pragma once
// xIELU, an activation with two trained values (Apertus; arXiv 2411.13010; transformers' activations.py, XIELUActivation): with
// p = softplus(positive) and n = 1/2 + softplus(negative),
//   f(x) = p · x² + x / 2 for x > 0, n · (e^x - 1 - x) + x / 2 below.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// positive, negative (1) in x's dtype; y as x.
[[nodiscard]] Tensor xielu(const Tensor& x, const Tensor& positive, const Tensor& negative);
/// Returns dx; adds to the gradients (1) of both, which are of one type and may be fp32.
[[nodiscard]] Tensor xielu_backward(const Tensor& dy, const Tensor& x, const Tensor& positive, const Tensor& negative,
                                    const Tensor& d_positive, const Tensor& d_negative);

}  // namespace mgplan::model
