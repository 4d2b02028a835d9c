#pragma once
// Code shared by mixers of tokens: the norm before their branch, and the residual addition after it.

#include "model/layers/context.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/stream_norm.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`.
struct BranchEndsSaved {
    StreamNormSaved norm;
    Tensor normed;  ///< input of the branch
};

/// The norm bears the name of the linear layer that it belongs to ("mixer.in_proj").
class BranchEnds {
public:
    /// `linear`: "mixer.in_proj", after the layer's prefix.
    BranchEnds(const LayerSite& site, const std::string& linear);

    /// The branch's input, which is kept.
    [[nodiscard]] const Tensor& enter(const RankContext& context, const Tensor& x, BranchEndsSaved& saved) const;
    /// The layer's output: y, which the branch gave, added to the stream. `reads_normed`: false if the branch's backward does not read it.
    [[nodiscard]] Tensor leave(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& y, const Tensor& x,
                               BranchEndsSaved& saved, bool reads_normed = true) const;

    /// The gradient of y. Computes `normed` again if it was not saved and the branch's backward reads it.
    [[nodiscard]] Tensor backward_into(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                       BranchEndsSaved& saved, bool reads_normed = true) const;
    /// The gradient of x, from that of `normed` and the layer's; adds to the main gradients of the norm. Consumes what was saved.
    [[nodiscard]] Tensor backward_out(const RankContext& context, const Tensor& dy, Tensor d_normed, BranchEndsSaved& saved) const;

private:
    ResidualPath residual_;
    bool keeps_normed_;
    StreamNorm norm_;
};

}  // namespace mgplan::model
