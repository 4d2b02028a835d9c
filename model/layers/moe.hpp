#pragma once
// The mixture-of-experts half of a decoder layer: norm, router, dispatch, experts, combination, shared experts, residual
// addition (Megatron-LM transformer/moe/moe_layer.py).

#include <optional>

#include "model/layers/context.hpp"
#include "model/layers/experts.hpp"
#include "model/layers/router.hpp"
#include "model/layers/shared_experts.hpp"
#include "model/layers/token_dispatcher.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// What a forward keeps. Selective recompute of layernorm drops `normed`, of moe all of `mixture`.
struct MoeSaved {
    /// Between the norm and the residual addition.
    struct Mixture {
        RouterSaved router;
        DispatchPlan plan;
        ExpertsSaved experts;
        SharedExpertsSaved shared;
    };

    Tensor x;
    NormStatistics statistics;
    Tensor normed;  ///< input of router, experts and shared experts
    std::optional<Mixture> mixture;
};

/// Each rank routes the rows it holds outside the tp region. With tp > 1 that takes sequence parallelism, or the ranks of a
/// tp group would send the same rows (Megatron-LM arguments.py demands it too).
class Moe {
public:
    /// `prefix`: "decoder.layers.3."; `layer`: global layer number from 0.
    Moe(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
        EnumSet<RecomputeModule> recompute);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, MoeSaved& saved) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, MoeSaved& saved) const;

private:
    [[nodiscard]] Tensor mix(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                             MoeSaved::Mixture& saved) const;
    [[nodiscard]] Tensor mix_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                      const Tensor& normed, MoeSaved::Mixture& saved) const;

    const ModelSpec& model_;
    std::int64_t layer_;
    EnumSet<RecomputeModule> recompute_;
    Weight norm_weight_, norm_bias_;
    Router router_;
    AllToAllDispatcher dispatcher_;
    Experts experts_;
    std::optional<SharedExperts> shared_;
};

}  // namespace mgplan::model
