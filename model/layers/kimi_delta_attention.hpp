#pragma once
// Kimi delta attention as the first half of a layer: norm, projections, causal convolution, a delta rule that decays each channel of a key
// on its own, gated norm of each head, output projection, residual addition (arXiv 2510.26692 section 3; modeling_kimi_linear.py,
// KimiLinearDeltaAttention). Megatron-core has no such layer.

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/delta_rule.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`.
struct KimiDeltaAttentionSaved : BranchEndsSaved {
    Tensor projected;                  ///< q, k and v of the rank's heads and their raw writing strengths, side by side
    Tensor decay_latent, gate_latent;  ///< (rows outside the tp region, head_dim), inputs of the projections to decays and gates
    Tensor decays;                     ///< raw, (rows, heads · head_dim)
    Tensor gates;                      ///< of the output, raw, (rows, heads · head_dim)
    Tensor convolved;                  ///< q, k and v after the convolution
    Tensor attended;                   ///< output of the delta rule: (rows, heads · head_dim)
    Tensor inverse_deviation;          ///< of the norm of each row and head
    Tensor gated;                      ///< input of the output projection
};

/// Heads are divided over tp; every rank has the whole of both small projections. A sequence lies whole on a rank: no context parallelism.
class KimiDeltaAttention {
public:
    using Saved = KimiDeltaAttentionSaved;
    KimiDeltaAttention(const mgplan::KimiDeltaAttention& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// Sizes on this rank, for the rows of its projection.
    [[nodiscard]] DeltaRuleSizes sizes_of(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& projected) const;
    [[nodiscard]] DeltaRuleInputs rule_inputs(const Saved& saved, const DeltaRuleSizes& sizes) const;
    /// Gradient of `normed`; consumes what was saved but for the norm and `normed`.
    [[nodiscard]] Tensor to_normed(const RankContext& context, const MicrobatchContext& microbatch, Tensor d_gated, Saved& saved) const;

    mgplan::KimiDeltaAttention mixer_;
    BranchEnds ends_;
    Weight conv_weight_, step_bias_, log_decay_, gated_norm_weight_;
    ColumnParallelLinear projection_, decay_up_, gate_up_;
    DuplicatedLinear decay_down_, gate_down_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
