#pragma once
// The attention half of a decoder layer: norm, projection to q, k and v, core attention, output projection, residual
// addition.

#include <optional>

#include "model/layers/context.hpp"
#include "model/layers/context_parallel.hpp"
#include "model/layers/key_indexer.hpp"
#include "model/layers/latent_qkv.hpp"
#include "model/layers/packed_qkv.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/stream_norm.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Tensors a forward saves for its backward. Selective recompute of core_attn drops the core's log-sum-exp, of layernorm
/// `normed`, of mla_up_proj q, k and v and the normalised latents.
struct SelfAttentionSaved {
    Tensor x;  ///< the residual stream: input of the norm
    NormStatistics statistics;
    LinearInput normed;  ///< input of the projection to q, k and v
    PackedQkvSaved packed;
    LatentQkvSaved latent;
    Tensor chosen;         ///< places of the keys that an indexer chose for each row, (rows, at most index_top_k) int32
    Tensor q, k, v;        ///< inputs of the core attention, rotated: (rows, heads, width)
    Tensor packed_heads;   ///< in their place where they stay packed: the projection, rotated
    AttentionResult core;  ///< output and log-sum-exp; without a gate the output is also the output projection's input
    AdapterSaved adapter;  ///< of the output projection
    Tensor gated;          ///< the output times its gate: input of the output projection; undefined without
    StreamNormSaved behind;
};

/// Multi-head, grouped-query and multi-latent attention; heads divided over tp.
class SelfAttention {
public:
    using Saved = SelfAttentionSaved;
    SelfAttention(const Attention& mixer, const LayerSite& site);
    SelfAttention(const LatentAttention& mixer, const LayerSite& site);

    /// The weights that have copies in fp8, for refresh().
    void add_copied(std::vector<CopiedWeight>& into) const;
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x,
                                 SelfAttentionSaved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                  SelfAttentionSaved& saved) const;

    /// From the output of the norm to that of the output projection, without either end of the residual path: for layers with a
    /// parallel branch. `saved.x` and `saved.normed` are not used.
    [[nodiscard]] Tensor branch(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                                SelfAttentionSaved& saved) const;
    /// Returns the gradient of `normed`, which must be the forward's.
    [[nodiscard]] Tensor branch_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy,
                                         const LinearInput& normed, SelfAttentionSaved& saved) const;

private:
    /// `norm`: "input_layernorm."; `scale`: of the scores.
    SelfAttention(const LayerSite& site, const AttentionScores& scores, double scale, const std::string& norm);

    /// The core for this microbatch's sequences: a window that is no shorter than they are is left out, so that fused kernels can be used.
    [[nodiscard]] CoreAttention core_of(const MicrobatchContext& microbatch) const;
    [[nodiscard]] bool stays_packed(const RankContext& context, const MicrobatchContext& microbatch) const;
    /// Computes queries, keys and values and saves them for the core; latent attention may free its own again.
    void project(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                 SelfAttentionSaved& saved) const;
    [[nodiscard]] AttentionResult attend(const RankContext& context, const MicrobatchContext& microbatch,
                                         const SelfAttentionSaved& saved) const;
    /// From the gradient of the core's output to that of `normed`; frees the tensors that the core saved.
    [[nodiscard]] Tensor heads_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor d_output,
                                        const Tensor& d_gate, const LinearInput& normed, SelfAttentionSaved& saved) const;
    /// Computes the tensors of the branch again that selective recompute dropped.
    void recompute(const RankContext& context, const MicrobatchContext& microbatch, const LinearInput& normed,
                   SelfAttentionSaved& saved) const;
    /// Returns the projection's input: x after the norm, or x itself if the model has none here.
    [[nodiscard]] LinearInput normalised(const RankContext& context, const Tensor& x, NormStatistics& statistics) const;
    /// True if a backward reads the norm's output.
    [[nodiscard]] bool reads_normed(const SelfAttentionSaved& saved) const {
        return packed_ ? packed_->reads_input(saved.packed) : latent_->reads_input();
    }

    Norms norms_;
    ResidualPath residual_;
    EnumSet<RecomputeModule> recompute_;
    Weight norm_weight_, norm_bias_;
    std::optional<PackedQkv> packed_;  ///< this one or the other
    std::optional<LatentQkv> latent_;
    std::optional<KeyIndexer> indexer_;
    RowParallelLinear projection_;
    StreamNorm behind_;
    CoreAttention core_;
};

}  // namespace mgplan::model
