#pragma once
// The experts of an MoE layer that every row goes to: a dense MLP without biases, divided over tp
// (Megatron-LM transformer/moe/shared_experts.py), its output scaled by a learned gate where the model has one.

#include "model/layers/context.hpp"
#include "model/layers/tensor_parallel.hpp"

namespace mgplan::model {

/// Tensors a forward saves besides its input. Selective recompute of shared_experts drops all.
struct SharedExpertsSaved {
    Tensor before;      ///< output of the first product: (rows, 2·ffn/tp) when gated
    LinearInput after;  ///< output of the activation: (rows, ffn/tp)
    AdapterSaved first, second;
    Tensor output, gate;  ///< with a gate: the output that it scales (rows, hidden), and its logits (rows, 1)
};

class SharedExperts {
public:
    SharedExperts(const Mixture& mixture, const LayerSite& site);

    /// The weights that have copies in fp8, for refresh().
    void add_copied(std::vector<CopiedWeight>& into) const;
    /// x and y (rows, hidden), outside the tp region. In fp8 x is cast here and again in the backward, because the router reads the uncast
    /// x (Megatron-LM's save_original_input).
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, SharedExpertsSaved& saved) const;
    /// `x` as forward saw it. Adds to the main gradients; consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, const Tensor& x, SharedExpertsSaved& saved) const;
    /// True if a backward reads x.
    [[nodiscard]] bool reads_input(const SharedExpertsSaved& saved) const {
        return first_.reads_input(saved.first) || gate_.trained() || recomputes_;
    }

private:
    [[nodiscard]] Tensor run(const RankContext& context, const Tensor& x, SharedExpertsSaved& saved) const;

    Activation activation_;
    bool gated_;
    bool recomputes_;
    Weight gate_;
    ColumnParallelLinear first_;
    RowParallelLinear second_;
};

}  // namespace mgplan::model
