#pragma once
// The gated short convolution of LFM2 (transformers 5.23.0, models/lfm2/modeling_lfm2.py, Lfm2ShortConv): of a projection's three equal
// blocks B, C and x, y = C · conv(B · x), where conv is a convolution along the sequence of each channel alone that sees its own place and
// those before. All of it is one op, since nothing but the projection has to be kept for the backward.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// y (rows, width), channel c at place t = C_c(t) · Σ_j weight_cj · B_c(t') · x_c(t') with t' = t - taps + 1 + j, places before the first
/// 0. projected (rows, 3 · width): B, C, x, its rows places · batch; weight (width, 1, taps).
[[nodiscard]] Tensor short_conv(const Tensor& projected, const Tensor& weight, std::int64_t batch);
/// Returns the gradient of `projected`; adds to weight_gradient, which may be fp32.
[[nodiscard]] Tensor short_conv_backward(const Tensor& dy, const Tensor& projected, const Tensor& weight, std::int64_t batch,
                                         const Tensor& weight_gradient);

}  // namespace mgplan::model
