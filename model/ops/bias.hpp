#pragma once
// Adding a bias to every row, and its gradient.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// x (rows, n) += bias (n), in place.
void add_bias(const Tensor& x, const Tensor& bias);

/// x (rows, n) += row_weights (rows) · bias (n), in place; weights in fp32 (fp64 for fp64).
void add_weighted_bias(const Tensor& x, const Tensor& bias, const Tensor& row_weights);

/// gradient (n) += column sums of dy (rows, n); the gradient may be fp32 where dy is 16-bit.
void bias_gradient(const Tensor& dy, const Tensor& gradient);
/// The same for add_weighted_bias; adds to d_row_weights (rows) too.
void weighted_bias_gradient(const Tensor& dy, const Tensor& bias, const Tensor& row_weights, const Tensor& gradient,
                            const Tensor& d_row_weights);

}  // namespace mgplan::model
