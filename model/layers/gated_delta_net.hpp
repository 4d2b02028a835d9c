#pragma once
// A gated delta net as the first half of a layer: norm, projection, causal convolution, delta rule, gated norm of each head, output
// projection, residual addition (arXiv 2412.06464; Qwen3-Next; Megatron-core ssm/gated_delta_net/).

#include <optional>
#include <string_view>

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/head_exchange.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/delta_rule.hpp"
#include "model/ops/gated_norm.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`.
struct GatedDeltaNetSaved : BranchEndsSaved {
    Tensor projected;  ///< q, k, v, z of the rank's heads, their raw writing strengths and decays, side by side; exchanged: without z
    Tensor gates;      ///< z of the rank's rows, where the others were exchanged; else undefined
    Tensor convolved;  ///< q, k, v after the convolution
    Tensor attended;   ///< output of the delta rule of the rank's rows: (rows, value heads · value_dim)
    Tensor inverse_deviation;  ///< of the norm of each row and head
    Tensor gated;              ///< input of the output projection; undefined where no backward reads it
    AdapterSaved into, out;    ///< of the projections' adapters
};

/// Name of the delta rule's output by rows of the sequence, where it was computed by heads.
inline constexpr std::string_view kAttendedBySequence = "delta rule output of this rank's rows";

/// Key and value heads are divided over tp. Context-parallel ranks exchange q, k, v, strengths and decays of their slices for those of
/// whole sequences of a share of the heads, in front of the convolution, and the rule's output back. The gates, which Megatron-core
/// exchanges as well, stay where the gated norm needs them.
class GatedDeltaNet {
public:
    using Saved = GatedDeltaNetSaved;
    GatedDeltaNet(const mgplan::GatedDeltaNet& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// Sizes of the heads that one of `cp` ranks has of this one's, for `rows`.
    [[nodiscard]] DeltaRuleSizes sizes_of(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows, int cp) const;
    /// The exchange of all but the gates from a slice of the sequence to a share of the heads; nothing if cp has one rank.
    [[nodiscard]] std::optional<ColumnExchange> exchange_of(const RankContext& context, const MicrobatchContext& microbatch) const;
    [[nodiscard]] GatedNormOptions norm_options(const RankContext& context) const;  ///< of the norm of each head
    [[nodiscard]] DeltaRuleInputs rule_inputs(const Saved& saved, const DeltaRuleSizes& sizes, const ColumnExchange* exchange) const;
    [[nodiscard]] StateConv conv_of(const ColumnExchange* exchange) const { return {exchange, kConvolved, conv_weight_, no_bias_}; }

    static constexpr std::size_t kConvolved = 3;  ///< of the exchanged blocks: q, k, v

    mgplan::GatedDeltaNet mixer_;
    BranchEnds ends_;
    Weight conv_weight_, no_bias_, step_bias_, log_decay_, gated_norm_weight_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
