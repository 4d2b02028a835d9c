#pragma once
// A convolution along the sequence of each channel alone, over its own place and those before, followed by SiLU: it precedes
// the scans of Mamba-2 (arXiv 2405.21060, section 7) and of gated delta nets.

#include "model/device/tensor.hpp"

namespace mgplan::model {

/// Channels of a projection: columns [begin, begin + width) of its rows.
struct Columns {
    std::int64_t begin = 0;
    std::int64_t width = 0;
};

/// y (rows, channels.width), channel c at place t = silu(bias_c + Σ_j weight_cj · x_c(t - taps + 1 + j)), places before the first 0.
/// x (rows, any), its rows places · batch; weight (channels.width, 1, taps); bias (channels.width) or undefined.
[[nodiscard]] Tensor causal_conv(const Tensor& x, Columns channels, const Tensor& weight, const Tensor& bias, std::int64_t batch);
/// Writes the gradient of x to the same columns of dx, which has x's shape; adds to weight_gradient and (where defined)
/// bias_gradient, which may be fp32. The values between the convolution and SiLU are computed again.
void causal_conv_backward(const Tensor& dy, const Tensor& x, Columns channels, const Tensor& weight, const Tensor& bias, std::int64_t batch,
                          const Tensor& dx, const Tensor& weight_gradient, const Tensor& bias_gradient);

}  // namespace mgplan::model
