#pragma once
// Lightning attention as the first half of a layer: norm, projection, silu, a scan whose decays follow from head and layer, a norm over all
// heads at once, the output's gate, output projection, residual addition (arXiv 2401.04658, MiniMax-01 2501.08313; transformers 5.23.0,
// modeling_minimax.py, MiniMaxLightningAttention). Megatron-core has no such layer.

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/state_space.hpp"

namespace mgplan::model {

/// Tensors a forward saves. The backward computes the output of silu, decays and states again. Selective recompute of layernorm drops
/// `normed`.
struct LightningAttentionSaved : BranchEndsSaved {
    Tensor projected;           ///< v, k and q of the rank's heads before silu, and the output's gates, side by side
    Tensor scanned;             ///< output of the scan: (rows, heads · head_dim)
    NormStatistics statistics;  ///< of the norm over all heads
    Tensor normalised;          ///< output of that norm
    Tensor gated;               ///< input of the output projection
};

/// Heads are divided over tp. A sequence lies whole on a rank: no context parallelism.
class LightningAttention {
public:
    using Saved = LightningAttentionSaved;
    LightningAttention(const mgplan::LightningAttention& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// Sizes on this rank, for the rows of its projection.
    [[nodiscard]] StateSpaceSizes sizes_of(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& projected) const;

    std::int64_t number_, layers_;  ///< the decays depend on both
    mgplan::LightningAttention mixer_;
    BranchEnds ends_;
    Weight norm_weight_, no_bias_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
