#pragma once
// Attention and the mixer of Mamba-2 in parallel as the first half of a layer: one norm, both branches, the sum of their outputs,
// residual addition (Falcon-H1, arXiv 2507.22448 section 2; modeling_falcon_h1.py, FalconH1DecoderLayer).

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/mamba_mixer.hpp"
#include "model/layers/self_attention.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`; that of core_attn drops the same as in SelfAttentionSaved.
struct AttentionBesideMambaSaved : BranchEndsSaved {
    SelfAttentionSaved attention;
    MambaMixerSaved state;
};

/// Heads of both, and groups, are divided over tp. A sequence lies whole on a rank: no context parallelism.
class AttentionBesideMamba {
public:
    using Saved = AttentionBesideMambaSaved;
    AttentionBesideMamba(const AttentionBesideMamba2& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    double attention_multiplier_;  ///< of the attention's output
    BranchEnds ends_;
    SelfAttention attention_;
    MambaMixer state_;
};

}  // namespace mgplan::model
