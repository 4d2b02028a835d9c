#pragma once
// Causal attention that keeps its output and the log-sum-exp of each row, never a sequence-by-sequence matrix
// (FlashAttention, arXiv 2205.14135).

#include "model/device/tensor.hpp"
#include "model/ops/positions.hpp"
#include "model/ops/qkv.hpp"

namespace mgplan::model {

struct AttentionResult {
    Tensor output;       ///< (query rows, heads, v_dim), q's dtype
    Tensor log_sum_exp;  ///< (query rows, heads), fp32 (fp64 for fp64); -inf where a row sees no key
};

/// q (query rows, heads, qk_dim), k (key rows, kv_heads, qk_dim), v (key rows, kv_heads, v_dim); heads is a multiple of
/// kv_heads. A query sees the keys of its own sequence at its own position and before; with a window (> 0) the last `window` of these.
/// With a soft cap (> 0) the scores, scaled, become cap · tanh(score / cap).
[[nodiscard]] AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, const Positions& query_positions,
                                        const Positions& key_positions, double scale, std::int64_t window = 0, double soft_cap = 0);

struct AttentionGradients {
    Tensor q, k, v;
};

/// Gradients for the given keys, from the output and log-sum-exp over ALL keys of the row (so ring steps add up).
[[nodiscard]] AttentionGradients attention_backward(const Tensor& d_output, const Tensor& q, const Tensor& k, const Tensor& v,
                                                    const AttentionResult& result, const Positions& query_positions,
                                                    const Positions& key_positions, double scale, std::int64_t window = 0,
                                                    double soft_cap = 0);

/// The same of a whole sequence's queries, keys and values where they lie, in packed (rows, heads.width()); nothing is copied.
[[nodiscard]] AttentionResult packed_attention(const Tensor& packed, const PackedHeads& heads, const Positions& positions, double scale,
                                               std::int64_t window = 0, double soft_cap = 0);
/// Returns the gradient of `packed`.
[[nodiscard]] Tensor packed_attention_backward(const Tensor& d_output, const Tensor& packed, const PackedHeads& heads,
                                               const AttentionResult& result, const Positions& positions, double scale,
                                               std::int64_t window = 0, double soft_cap = 0);

/// Returns true if attention of packed heads costs no more than of separate copies: false if a library has a kernel for the copies alone
/// (KernelTraits::fused_plans).
[[nodiscard]] bool reads_packed(const Device& device, Dtype dtype, const PackedHeads& heads, const Positions& positions,
                                std::int64_t window = 0, double soft_cap = 0);

/// Folds `other`, attention of the same queries over other keys, into `into`, weighted by their log-sum-exps.
void merge_attention(AttentionResult& into, const AttentionResult& other);

}  // namespace mgplan::model
