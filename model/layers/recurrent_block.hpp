#pragma once
// The recurrent block of Griffin as the first half of a layer: norm, two branches out of one projection, of which one is convolved and
// carries the recurrence and the other gates its output, output projection, residual addition (arXiv 2402.19427, sections 2.3 and 2.4;
// transformers 5.23.0, modeling_recurrent_gemma.py, RecurrentGemmaRecurrentBlock). Implemented for shapes alone, as its ops are.

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`.
struct RecurrentBlockSaved : BranchEndsSaved {
    Tensor projected;                 ///< y and x of the rank's channels, side by side
    Tensor convolved;                 ///< x after the convolution
    Tensor input_gates, decay_gates;  ///< raw
    Tensor recurred;                  ///< output of the recurrence, which its backward reads as the states before each place
    Tensor gated;                     ///< input of the output projection
};

/// Heads, whose channels the gates mix, are divided over tp. A sequence lies whole on a rank: no context parallelism.
class RecurrentBlock {
public:
    using Saved = RecurrentBlockSaved;
    RecurrentBlock(const GatedLinearRecurrence& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    BranchEnds ends_;
    Weight conv_weight_, conv_bias_, input_gate_, input_gate_bias_, decay_gate_, decay_gate_bias_, decay_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
