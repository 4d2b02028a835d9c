#pragma once
// Queries, keys and values of multi-latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1; Megatron-core
// transformer/multi_latent_attention.py): low-rank down projections that every tp rank holds whole, norms on the latents, up
// projections divided over tp by heads, and a rotated key part that all heads share.

#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/qkv.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Rows outside the tp region, except of k_rotary.
struct LatentQkvSaved {
    Tensor q_latent;   ///< (rows, q_lora_rank); of queries without a latent the input of their norm, if they have one
    Tensor kv_latent;  ///< (rows, kv_lora_rank)
    NormStatistics q_statistics, kv_statistics;
    LinearInput q_normed, kv_normed;  ///< inputs of the up projections; without norms the latents themselves, or their casts
    AdapterSaved q_down, kv_down, q_up, kv_up;
    Tensor k_rotary;  ///< (rows inside, qk_rope_head_dim), rotated; kept where the up projection is recomputed
};

/// Heads are (own part, rotated part) for queries and keys, with any other position embedding too. The rotated part is
/// turned in halves; Megatron-core takes every
/// second value first, which is the same model with the projections' rows in another order.
class LatentQkv {
public:
    /// Under recompute module mla_up_proj the backward computes the output of the up projections again.
    LatentQkv(const LatentAttention& mixer, const LayerSite& site);

    /// The weights that have copies in fp8, for refresh().
    void add_copied(std::vector<CopiedWeight>& into) const;
    /// Returns `normed` in the form that the down projections read, which share one cast; in 16 bits if queries have no latent, because
    /// their projection has a scale over tp.
    [[nodiscard]] LinearInput input(const Tensor& normed) const;
    /// normed (rows outside the tp region, hidden) -> q, k (rows, heads / tp, qk_head_dim) and v (rows, heads / tp, v_head_dim).
    [[nodiscard]] QkvParts forward(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                                   LatentQkvSaved& saved) const;
    [[nodiscard]] bool recomputes_up() const { return recompute_up_; }
    /// True if a backward reads `normed`.
    [[nodiscard]] bool reads_input() const {
        if (kv_down_.reads_input()) return true;
        if (mixer_.q_lora_rank > 0) return q_down_.reads_input();
        return q_up_.reads_input() || q_norm_weight_.defined() || recompute_up_;
    }
    /// To be called after the core attention's forward: frees the tensors that forward_up() computes again.
    void discard_up(LatentQkvSaved& saved) const;
    /// The forward from the latents on.
    [[nodiscard]] QkvParts forward_up(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                                      LatentQkvSaved& saved) const;
    /// Returns the gradient of `normed`; adds to the main gradients. With recompute_up forward_up() comes before it.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, AttentionGradients gradients,
                                  const LinearInput& normed, LatentQkvSaved& saved) const;

private:
    /// Turns the rotated part of every head of q (rows, heads, qk_head_dim) in place.
    void rotate_queries(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& q, bool inverse) const;
    /// The shared key part (rows, qk_rope_head_dim), turned.
    [[nodiscard]] Tensor rotated_keys(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& k, bool inverse) const;

    [[nodiscard]] std::int64_t head_dim() const { return mixer_.qk_nope_head_dim + mixer_.qk_rope_head_dim; }  ///< of queries and keys

    LatentAttention mixer_;
    Normalization normalization_;
    RotaryAngles angles_;
    bool recompute_up_;
    Weight q_norm_weight_, q_norm_bias_, kv_norm_weight_, kv_norm_bias_;
    DuplicatedLinear q_down_, kv_down_;
    ColumnParallelLinear q_up_;  ///< from the latent, or without one from `normed`
    ColumnParallelLinear kv_up_;
};

}  // namespace mgplan::model
