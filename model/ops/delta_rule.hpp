#pragma once
// The gated delta rule (arXiv 2412.06464): for each value head a state (key_dim, value_dim) that decays, and in which the value under a
// key is replaced.

#include "model/device/tensor.hpp"
#include "model/ops/state_space_sizes.hpp"

namespace mgplan::model {

/// Inputs of the rule. Queries, keys and values lie side by side in a row of `mixed` (rows, DeltaRuleSizes::width()). Columns of
/// `projected` (rows, any) hold raw writing strengths of the value heads from beta_begin; columns of `decays` (rows, any), or of
/// `projected` where that is undefined, hold raw decays from decay_begin, DeltaRuleSizes::decays() of them.
struct DeltaRuleInputs {
    Tensor mixed;
    Tensor projected;
    std::int64_t beta_begin = 0, decay_begin = 0;
    Tensor step_bias;  ///< dt_bias (DeltaRuleSizes::decays())
    Tensor log_decay;  ///< A_log (value_heads)
    Tensor decays{};
};

/// With q and k divided by their lengths (square root of the sum of squares + 1e-6), q also by sqrt(key_dim), beta = strength ·
/// sigmoid(raw) and g = -exp(log_decay) · softplus(raw + step_bias), for each value head: S' = exp(g_t) S_(t-1), S_t = S' + k_t (beta_t
/// (v_t - S'ᵀ k_t))ᵀ, y_t = S_tᵀ q_t (modeling_qwen3_next.py, torch_recurrent_gated_delta_rule). With a decay for each channel exp(g_t) is
/// a diagonal matrix over the values of a key (Kimi delta attention, arXiv 2510.26692; modeling_kimi_linear.py,
/// recurrent_kimi_delta_attention). Returns y (rows, value_heads · value_dim). Saves nothing but the inputs: the backward computes states
/// again, from those at the start of each chunk, or of each block of chunks that a GPU works on at once. flash-linear-attention
/// (ops/gated_delta_rule/chunk.py) makes them again too, but keeps, for each place and head, the decays summed within a chunk, beta and a
/// row of the chunk's inverted triangular matrix.
[[nodiscard]] Tensor delta_rule(const DeltaRuleInputs& inputs, const DeltaRuleSizes& sizes);

/// Returns the gradient of `mixed`; writes those of strengths and decays to the same columns of d_projected, which has the shape of
/// projected, or those of decays to `d_decays` where they have a tensor of their own; adds to the gradients of step_bias and log_decay,
/// which may be fp32.
[[nodiscard]] Tensor delta_rule_backward(const Tensor& dy, const DeltaRuleInputs& inputs, const DeltaRuleSizes& sizes,
                                         const Tensor& d_projected, const Tensor& step_bias_gradient, const Tensor& log_decay_gradient,
                                         const Tensor& d_decays = {});

}  // namespace mgplan::model
