#pragma once
// The scan of Mamba-2 (state-space duality, arXiv 2405.21060, section 6): for each head a state (head_dim, state) that decays from place
// to place, worked on in chunks as matrices.

#include "model/device/tensor.hpp"
#include "model/ops/state_space_sizes.hpp"

namespace mgplan::model {

/// Inputs of a scan. x, B and C lie side by side in a row of `mixed` (rows, StateSpaceSizes::width()); heads h of a group, in their
/// order, share its B and C. Raw steps are columns [step_begin, step_begin + heads) of `projected` (rows, any). With fixed decays
/// (StateSpaceSizes::fixed) all but `mixed` are undefined.
struct StateSpaceInputs {
    Tensor mixed;
    Tensor projected{};
    std::int64_t step_begin = 0;
    Tensor step_bias{};  ///< dt_bias (heads)
    Tensor log_decay{};  ///< A_log (heads)
    Tensor skip{};       ///< D (heads)
};

/// With dt = softplus(raw + step_bias), kept within the limits, and A = -exp(log_decay), for each head:
/// H_t = exp(dt A) H_(t-1) + dt x_t B_tᵀ, y_t = H_t C_t + skip · x_t. Returns y (rows, heads · head_dim). With fixed decays dt = 1,
/// skip = 0, and A is FixedDecays'.
/// Steps, decays and the states at the chunks' starts are scratch: the backward makes them again, as mamba_ssm's does
/// (ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn).
[[nodiscard]] Tensor state_space_scan(const StateSpaceInputs& inputs, const StateSpaceSizes& sizes);

/// Gradients that a scan adds to, (heads) each; they may be fp32. Undefined with fixed decays, and d_projected too.
struct StateSpaceGradients {
    Tensor step_bias, log_decay, skip;
};

/// Returns the gradient of `mixed`; writes that of the raw steps to the same columns of d_projected, which has the shape of projected.
[[nodiscard]] Tensor state_space_scan_backward(const Tensor& dy, const StateSpaceInputs& inputs, const StateSpaceSizes& sizes,
                                               const Tensor& d_projected, const StateSpaceGradients& gradients);

}  // namespace mgplan::model
