#pragma once
// The experts of a mixture that one rank holds: two grouped products with the weighted activation between them
// (Megatron-LM transformer/moe/experts.py, TEGroupedMLP).

#include <cstdint>
#include <span>
#include <vector>

#include "model/layers/context.hpp"

namespace mgplan::model {

/// What a forward keeps. Selective recompute of moe_act drops `after`.
struct ExpertsSaved {
    Tensor rows;         ///< (rows, hidden), sorted by expert
    Tensor row_weights;  ///< (rows) router probabilities, fp32 (fp64)
    Tensor before;       ///< output of the first product: (rows, 2·ffn/etp) when gated
    Tensor after;        ///< weighted activation: (rows, ffn/etp)
};

struct ExpertGradients {
    Tensor rows;         ///< a partial sum over etp, like the output of forward
    Tensor row_weights;  ///< the same
};

/// Each expert is an MLP, its width divided over etp. The probability of a row scales its activation, in front of the second
/// product, so that no output has to be kept for its gradient; and it scales the second bias (experts.py, _apply_bias), which
/// the first etp rank adds for all.
class Experts {
public:
    /// `prefix`: "decoder.layers.3.mlp.experts."; all experts found under it.
    Experts(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, EnumSet<RecomputeModule> recompute);

    /// rows (Σ per_expert, hidden), row_weights (Σ per_expert). Returns (Σ per_expert, hidden), a partial sum over etp.
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& rows, const Tensor& row_weights,
                                 std::span<const std::int64_t> per_expert, ExpertsSaved& saved) const;
    /// Adds to the main gradients; consumes what was saved.
    [[nodiscard]] ExpertGradients backward(const RankContext& context, const Tensor& dy, std::span<const std::int64_t> per_expert,
                                           ExpertsSaved& saved) const;

private:
    /// One projection of all experts.
    struct Projection {
        std::vector<Tensor> values, gradients;
        std::vector<Weight> biases;  ///< empty where the model has none
    };

    const ModelSpec& model_;
    bool keeps_activation_;
    Projection first_, second_;
};

}  // namespace mgplan::model
