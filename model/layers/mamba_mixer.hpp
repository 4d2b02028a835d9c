#pragma once
// The mixer of Mamba-2 as the first half of a layer: norm, projection, causal convolution, scan, gated norm, output projection, residual
// addition (arXiv 2405.21060, section 7; Megatron-core ssm/mamba_mixer.py).

#include <optional>
#include <string_view>

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/head_exchange.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/state_space.hpp"

namespace mgplan::model {

/// Tensors a forward saves. The backward computes the convolution's output, steps, decays and states again, as mamba_ssm does
/// (ops/triton/ssd_combined.py, MambaSplitConv1dScanCombinedFn). Selective recompute of layernorm drops `normed`.
struct MambaMixerSaved : BranchEndsSaved {
    Tensor projected;          ///< z, x, B, C of the rank's heads and groups, and their raw steps, side by side; exchanged: without z
    Tensor gates;              ///< z of the rank's rows, where the others were exchanged; else undefined
    Tensor scanned;            ///< output of the scan of the rank's rows: (rows, heads · head_dim)
    Tensor inverse_deviation;  ///< of the gated norm; undefined without its weight
    Tensor gated;              ///< input of the output projection, times its multiplier; undefined where no backward reads it
    AdapterSaved into, out;    ///< of the projections' adapters
};

/// Factors of the blocks of the input projection, and of the output.
struct MambaMultipliers {
    double gate = 1, input = 1, write = 1, read = 1, step = 1;  ///< of z, x, B, C and the raw steps
    double output = 1;
};

/// Name of the scan's output by rows of the sequence, where it was computed by heads.
inline constexpr std::string_view kScannedBySequence = "scan output of this rank's rows";

/// Heads and groups are divided over tp. Context-parallel ranks exchange x, B, C and steps of their slices for those of whole sequences of
/// a share of the heads, in front of the convolution, and the scan's output back; ranks with heads of one group share its B and C. The
/// gates, which Megatron-core exchanges as well, stay where the gated norm needs them.
class MambaMixer {
public:
    using Saved = MambaMixerSaved;
    MambaMixer(const Mamba2& mixer, const LayerSite& site, const MambaMultipliers& multipliers = {});

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

    /// From the output of the norm to that of the output projection, as SelfAttention::branch() does, and back. `saved.x` and
    /// `saved.normed` are not used.
    [[nodiscard]] Tensor branch(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed, Saved& saved) const;
    [[nodiscard]] Tensor branch_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, const Tensor& normed,
                                         Saved& saved) const;

private:
    /// Multiplies the blocks of the projection, or of its gradient, in place.
    void scale_blocks(const Tensor& projected, const StateSpaceSizes& sizes) const;
    /// Sizes of the heads that one of `cp` ranks has of this one's, for `rows`.
    [[nodiscard]] StateSpaceSizes sizes_of(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows,
                                           int cp) const;
    /// The exchange of x, B, C and steps from a slice of the sequence to a share of the heads; nothing if cp has one rank.
    [[nodiscard]] std::optional<ColumnExchange> exchange_of(const RankContext& context, const MicrobatchContext& microbatch) const;
    [[nodiscard]] StateSpaceInputs scan_inputs(const Tensor& projected, const StateSpaceSizes& sizes, std::int64_t batch,
                                               const ColumnExchange* exchange) const;
    [[nodiscard]] StateConv conv_of(const ColumnExchange* exchange) const { return {exchange, kConvolved, conv_weight_, conv_bias_}; }

    static constexpr std::size_t kConvolved = 3;  ///< of the exchanged blocks: x, B, C

    Mamba2 mixer_;
    MambaMultipliers multipliers_;
    BranchEnds ends_;
    Weight conv_weight_, conv_bias_, step_bias_, log_decay_, skip_, gated_norm_weight_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
