#pragma once
// RMSNorm together with a gate: after the scans of Mamba-2 (gate first; mamba_ssm ops/triton/layernorm_gated.py) and of gated delta
// nets (norm first), of Kimi's with a gate of its own kind.

#include "model/device/tensor.hpp"
#include "model/ops/causal_conv.hpp"

namespace mgplan::model {

struct GatedNormOptions {
    std::int64_t group = 0;   ///< values that share a norm; divides the width
    bool gate_first = false;  ///< norm(x · silu(z)) · weight, else norm(x) · weight · silu(z)
    double epsilon = 1e-5;
    bool sigmoid_gate = false;  ///< the gate is sigmoid(z), not silu(z) (Kimi Linear)
};

/// y (rows, width) of x (rows, width) and of the gate z, columns of `gates` (rows, any). weight holds one value for each column, or for
/// each column of a group; undefined: y = x · silu(z) without a norm. `inverse_deviation` (rows, width / group), fp32 (fp64 for fp64), is
/// kept for the backward.
[[nodiscard]] Tensor gated_norm(const Tensor& x, const Tensor& gates, Columns z, const Tensor& weight, const GatedNormOptions& options,
                                Tensor& inverse_deviation);
/// Returns dx; writes the gradient of z to the same columns of d_gates, which has the shape of gates; adds to weight_gradient.
[[nodiscard]] Tensor gated_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gates, Columns z, const Tensor& weight,
                                         const Tensor& inverse_deviation, const GatedNormOptions& options, const Tensor& d_gates,
                                         const Tensor& weight_gradient);

}  // namespace mgplan::model
