#pragma once
// The attention half of a decoder layer: norm, projection to q, k and v, rotary embedding, core attention, output
// projection, residual addition.

#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// What a forward keeps for its backward. Selective recompute of core_attn drops `core`, of layernorm `normed`.
struct SelfAttentionSaved {
    Tensor x;  ///< the residual stream: input of the norm
    NormStatistics statistics;
    Tensor normed;                        ///< input of the q, k, v projection
    Tensor q, k, v;                       ///< inputs of the core attention, rotated: (rows, heads, head_dim)
    Tensor q_before_norm, k_before_norm;  ///< with qk_norm
    NormStatistics q_statistics, k_statistics;
    AttentionResult core;  ///< output and log-sum-exp; the output is also the output projection's input
};

/// Multi-head and grouped-query attention; heads and kv heads divided over tp (kv heads are a multiple of tp). The packed
/// projection holds, per kv head, its query heads, its key, its value, as Megatron-core's linear_qkv.
class SelfAttention {
public:
    /// `prefix`: "decoder.layers.0.self_attention."; `layer`: global layer number from 0, for dropout.
    SelfAttention(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
                  EnumSet<RecomputeModule> recompute);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x,
                                 SelfAttentionSaved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                  SelfAttentionSaved& saved) const;

private:
    const ModelSpec& model_;
    std::int64_t layer_;
    EnumSet<RecomputeModule> recompute_;
    Weight norm_weight_, norm_bias_, q_norm_weight_, q_norm_bias_, k_norm_weight_, k_norm_bias_;
    ColumnParallelLinear qkv_;
    RowParallelLinear projection_;
};

}  // namespace mgplan::model
