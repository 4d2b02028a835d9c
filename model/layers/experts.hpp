#pragma once
// The experts of an MoE layer that one rank holds: two grouped products with the weighted activation between them
// (Megatron-LM transformer/moe/experts.py, TEGroupedMLP).

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/layers/context.hpp"
#include "model/layers/fp8_weight.hpp"
#include "model/layers/tensor_parallel.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of moe_act drops `after`.
struct ExpertsSaved {
    LinearInput rows;    ///< (rows, hidden), sorted by expert; in fp8 a scale for each expert, as of `after`
    Tensor row_weights;  ///< (rows) router probabilities, fp32 (fp64)
    Tensor before;       ///< output of the first product: (rows, 2·ffn/etp) when gated
    LinearInput after;   ///< weighted activation: (rows, ffn/etp)
    AdapterSaved first, second;
};

struct ExpertGradients {
    Tensor rows;         ///< a partial sum over etp, like the output of forward
    Tensor row_weights;  ///< the same
};

/// Each expert is an MLP, its width divided over etp. The probability of a row scales its activation, in front of the second
/// product, so that no output has to be kept for its gradient; and it scales the second bias (experts.py, _apply_bias), which
/// the first etp rank adds for all. Experts whose weights have copies in fp8 multiply as other linear layers do, the rows of each with a
/// scale of their own (model/ops/fp8_grouped.hpp).
class Experts {
public:
    /// All experts whose weights the site has.
    Experts(const Mixture& mixture, const LayerSite& site);

    /// The weights that have copies in fp8, for refresh().
    void add_copied(std::vector<CopiedWeight>& into) const;
    /// rows (Σ per_expert, hidden), row_weights (Σ per_expert). Returns (Σ per_expert, hidden), a partial sum over etp.
    [[nodiscard]] Tensor forward(const RankContext& context, Tensor rows, const Tensor& row_weights,
                                 std::span<const std::int64_t> per_expert, ExpertsSaved& saved) const;
    /// Adds to the main gradients; consumes what was saved.
    [[nodiscard]] ExpertGradients backward(const RankContext& context, const Tensor& dy, std::span<const std::int64_t> per_expert,
                                           ExpertsSaved& saved) const;

private:
    /// One projection of all experts.
    struct Projection {
        std::vector<Tensor> values, gradients;
        std::vector<Weight> biases;                   ///< empty where the model has none
        std::vector<std::shared_ptr<Fp8Weight>> fp8;  ///< empty unless in fp8
        LowRankAdapter adapter;                       ///< that all experts of the rank share

        [[nodiscard]] bool trained() const { return !gradients.empty() && gradients.front().defined(); }

        void add_copied(std::vector<CopiedWeight>& into) const;
        /// In the form in which products read it.
        [[nodiscard]] LinearInput input(const Tensor& x, std::span<const std::int64_t> per_expert, Dtype dtype) const;
        [[nodiscard]] bool in_blocks() const { return !fp8.empty() && fp8.front()->blocks; }
        /// Rows times the weights' transposes, or in a backward the weights.
        [[nodiscard]] Tensor multiply(const LinearInput& x, std::span<const std::int64_t> per_expert, bool forward,
                                      std::string_view name) const;
        /// Adds to the gradients of the weights.
        void add_gradients(const LinearInput& dy, const LinearInput& x, std::span<const std::int64_t> per_expert) const;
    };

    /// The weighted activation, in the form in which the second product reads it.
    [[nodiscard]] LinearInput activated(const ExpertsSaved& saved, std::span<const std::int64_t> per_expert) const;

    Activation activation_;
    bool gated_;
    bool keeps_activation_;
    /// A projection and the adapters of its experts, each of two projections.
    struct Adapted : Projection {
        Projection in, out;
        double factor = 1;

        [[nodiscard]] bool has_adapters() const { return adapter.defined() || !in.values.empty(); }
        /// True if a backward reads the projection's input.
        [[nodiscard]] bool reads_input() const { return trained() || has_adapters(); }
        /// Adds what the adapters make of x (rows, in) to y (rows, out).
        void add_adapted(const RankContext& context, const Tensor& x, std::span<const std::int64_t> per_expert, const Tensor& y,
                         AdapterSaved& saved) const;
        /// Adds their part of the gradient of x to dx, and those of their weights to the main gradients.
        void adapted_backward(const RankContext& context, const Tensor& dy, const Tensor& x, std::span<const std::int64_t> per_expert,
                              AdapterSaved& saved, const Tensor& dx) const;
    };
    Adapted first_, second_;
};

}  // namespace mgplan::model
