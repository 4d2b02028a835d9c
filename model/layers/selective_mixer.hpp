#pragma once
// The mixer of Mamba as the first half of a layer: norm, projection, causal convolution, steps and both maps of the state out of its
// output, selective scan with its gate, output projection, residual addition (arXiv 2312.00752, section 3.4; transformers 5.23.0,
// modeling_mamba.py, modeling_jamba.py). Implemented for shapes alone, as its scan is.

#include <array>

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/selective_scan.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`.
struct SelectiveMixerSaved : BranchEndsSaved {
    Tensor projected;              ///< x and z of the rank's channels, side by side
    Tensor convolved;              ///< x after the convolution
    std::array<Tensor, 3> mapped;  ///< latent of the steps, B and C, before their norms: (rows, dt_rank or state), whole
    std::array<NormStatistics, 3> statistics;
    std::array<Tensor, 3> maps;  ///< the same after them; without norms these alone
    Tensor steps;                ///< raw, (rows, channels)
    SelectiveScanResult scan;    ///< `gated` is the input of the output projection
};

/// Channels are divided over tp. Steps, B and C follow from all channels: partial sums that every rank adds up, in the backward too, as
/// serving engines divide it (vLLM, layers/mamba/mamba_mixer.py: x_proj by rows, dt_proj by columns). A sequence lies whole on a rank: no
/// context parallelism.
class SelectiveMixer {
public:
    using Saved = SelectiveMixerSaved;
    SelectiveMixer(const Mamba& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// True with norms of the steps' latent, of B and of C, with weights (Jamba) or without (Falcon Mamba).
    [[nodiscard]] bool normed() const { return mixer_.inner_norms != InnerNorms::none; }
    [[nodiscard]] SelectiveScanInputs scan_inputs(const Saved& saved, const MicrobatchContext& microbatch) const;
    /// The gradient of the convolution's output, from those of steps, B and C; adds to the gradients of the weights in between.
    [[nodiscard]] Tensor back_through_maps(const RankContext& context, SelectiveScanGradients gradients, Saved& saved) const;

    Mamba mixer_;
    BranchEnds ends_;
    Weight conv_weight_, conv_bias_, maps_weight_, steps_weight_, step_bias_, log_decay_, skip_;
    std::array<Weight, 3> norm_weights_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
