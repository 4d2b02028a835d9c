#pragma once
// Adding a bias to every row, and its gradient.

#include "model/tensor/tensor.hpp"

namespace mgplan::model {

/// x (rows, n) += bias (n), in place.
void add_bias(const Tensor& x, const Tensor& bias);

/// gradient (n) += column sums of dy (rows, n); the gradient may be fp32 where dy is 16-bit.
void bias_gradient(const Tensor& dy, const Tensor& gradient);

}  // namespace mgplan::model
