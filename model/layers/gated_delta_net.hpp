#pragma once
// A gated delta net as the first half of a layer: norm, projection, causal convolution, delta rule, gated norm of each head, output
// projection, residual addition (arXiv 2412.06464; Qwen3-Next; Megatron-core ssm/gated_delta_net/).

#include "model/layers/branch_ends.hpp"
#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/delta_rule.hpp"
#include "model/ops/gated_norm.hpp"

namespace mgplan::model {

/// What a forward keeps. Selective recompute of layernorm drops `normed`.
struct GatedDeltaNetSaved : BranchEndsSaved {
    Tensor projected;          ///< q, k, v, z of the rank's heads, their raw writing strengths and decays, side by side
    Tensor convolved;          ///< q, k, v behind the convolution
    Tensor attended;           ///< output of the delta rule: (rows, value heads · value_dim)
    Tensor inverse_deviation;  ///< of the norm of each row and head
    Tensor gated;              ///< input of the output projection
};

/// Key and value heads are divided over tp. A sequence lies whole on a rank: no context parallelism.
class GatedDeltaNet {
public:
    using Saved = GatedDeltaNetSaved;
    /// `part`: of kind "gated_delta_net"; `prefix`: "decoder.layers.0."; `layer`: global number from 0, for dropout.
    GatedDeltaNet(const ModelSpec& model, const LayerPart& part, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
                  EnumSet<RecomputeModule> recompute);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// Sizes on this rank, for the rows of its projection.
    [[nodiscard]] DeltaRuleSizes sizes_of(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& projected) const;
    [[nodiscard]] GatedNormOptions norm_options(const RankContext& context) const;  ///< of the norm of each head
    [[nodiscard]] DeltaRuleInputs rule_inputs(const Saved& saved, const DeltaRuleSizes& sizes) const;

    std::int64_t key_heads_, value_heads_, key_dim_, value_dim_;  ///< of all ranks
    std::int64_t strength_;
    double norm_epsilon_;  ///< 0: the context's
    BranchEnds ends_;
    Weight conv_weight_, step_bias_, log_decay_, gated_norm_weight_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
};

}  // namespace mgplan::model
