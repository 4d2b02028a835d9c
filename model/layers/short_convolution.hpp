#pragma once
// The gated short convolution of LFM2 as the first half of a layer: norm, projection to B, C and x, C · conv(B · x), output projection,
// residual addition (transformers 5.23.0, models/lfm2/modeling_lfm2.py, Lfm2ShortConv and Lfm2DecoderLayer).

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`.
struct ShortConvolutionSaved : BranchEndsSaved {
    Tensor projected;  ///< B, C and x of the rank's channels, side by side
    Tensor mixed;      ///< input of the output projection
};

/// Channels are divided over tp. A sequence lies whole on a rank: no context parallelism.
class ShortConvolution {
public:
    using Saved = ShortConvolutionSaved;
    ShortConvolution(const mgplan::ShortConvolution& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    BranchEnds ends_;
    Weight conv_weight_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
