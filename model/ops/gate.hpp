#pragma once
// Rows scaled by a learned gate: the shared experts of Qwen2-MoE.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// y (rows, width) = x · sigmoid(logits); logits (rows, 1) in x's dtype.
[[nodiscard]] Tensor gate_rows(const Tensor& x, const Tensor& logits);
/// Returns dx; writes the gradient of the logits, (rows, 1) in x's dtype, to d_logits.
[[nodiscard]] Tensor gate_rows_backward(const Tensor& dy, const Tensor& x, const Tensor& logits, Tensor& d_logits);

}  // namespace mgplan::model
