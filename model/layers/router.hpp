#pragma once
// The router of an MoE layer: which experts each row goes to, with what probability, and the loss that keeps them balanced.

#include <cstdint>

#include "model/layers/context.hpp"
#include "model/ops/router.hpp"

namespace mgplan::model {

/// Copies that an expert takes from one rank's `rows`: ceil(rows · top_k / experts · capacity factor) (Megatron-LM
/// moe_utils.py, get_capacity), and no more than there are rows. 0: dropless.
[[nodiscard]] std::int64_t expert_capacity(const Mixture& mixture, std::int64_t rows);

/// Tensors a forward saves.
struct RouterSaved {
    Routing routing;
    Tensor kept;    ///< routing.experts with dropped choices negative; the same tensor when dropless
    Tensor copies;  ///< (experts) int32: choices of each expert over tp·cp before dropping; with an auxiliary loss
};

/// The projection to experts, in the compute type; scores and probabilities in fp32 (fp64). Its weight is whole on every
/// rank, each of which routes its own rows (transformer/moe/router.py, TopKRouter).
class Router {
public:
    /// Reads the expert biases of its layer's number.
    Router(const Mixture& mixture, const LayerSite& site);
    [[nodiscard]] bool trained() const { return weight_.trained(); }

    /// x (rows, hidden), outside the tp region.
    void forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, RouterSaved& saved) const;
    /// Gradient of x from that of the probabilities (rows, top_k) and of the auxiliary loss, whose own gradient is
    /// microbatch.d_auxiliary (moe_utils.py, MoEAuxLossAutoScaler). Here the loss's value and the choices are reported: a
    /// recomputed layer runs forward twice and backward once.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_probabilities,
                                  const Tensor& x, const RouterSaved& saved) const;

private:
    /// Rows of a whole microbatch: those that the auxiliary loss counts.
    [[nodiscard]] std::int64_t all_rows(const RankContext& context, const Tensor& logits) const;

    Mixture mixture_;
    std::int64_t number_;
    Weight weight_, bias_;
};

}  // namespace mgplan::model
