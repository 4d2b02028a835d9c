#pragma once
// The mixture-of-experts half of a decoder layer: norm, router, dispatch, experts, combination, shared experts, residual
// addition (Megatron-LM transformer/moe/moe_layer.py).

#include <cstdint>
#include <optional>

#include "model/layers/context.hpp"
#include "model/layers/experts.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/router.hpp"
#include "model/layers/shared_experts.hpp"
#include "model/layers/stream_norm.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/layers/token_dispatcher.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`, of moe all of `mixture`.
struct MoeSaved {
    /// Between the norm and the residual addition.
    struct Mixture {
        RouterSaved router;
        SharedExpertsSaved shared;
        StreamNormSaved router_norm, experts_norm, behind_shared;  ///< of branches with norms of their own
        Tensor router_input;                                       ///< likewise: input of the router
        // The part that CUDA graphs leave outside:
        StreamNormSaved behind_experts;
        Permutation permutation;
        DispatchPlan plan;
        ExpertsSaved experts;
        LinearInput combined;  ///< output of the experts for each row (rows, latent); undefined without a latent
    };

    Tensor x;
    NormStatistics statistics;
    Tensor normed;  ///< input of router, experts and shared experts
    std::optional<Mixture> mixture;
    StreamNormSaved behind;
};

/// How far choose() goes: the parts of an MoE layer that CUDA graphs hold.
enum class ChosenUpTo : std::uint8_t {
    router,    ///< norm, shared experts, router
    permuted,  ///< and the dispatcher's first half: counts, sorting, copies in the order of their experts
};

/// Tensors that choose() passes to combine(): under CUDA graphs the boundary tensors.
struct ChosenRows {
    ChosenUpTo up_to = ChosenUpTo::permuted;
    Tensor hidden;         ///< the norm's output (rows, hidden), with a latent its map (rows, latent); permuted: copies of that
    Tensor probabilities;  ///< (rows, top_k); permuted: (copies)
    Tensor choices;        ///< (rows, top_k) int32, negative where dropped; permuted: undefined
    Tensor source;         ///< permuted: the permutation, (copies) int32
    Tensor counts;         ///< permuted: as SortedCopies has them
    Tensor shared;         ///< output of the shared experts (rows, hidden); undefined without
};

/// Gradients of ChosenRows' `hidden`, `probabilities` and `shared`.
struct ChosenGradients {
    ChosenUpTo up_to = ChosenUpTo::permuted;
    Tensor hidden, probabilities, shared;
};

/// Each rank routes the rows it holds outside the tp region. With tp > 1 that requires sequence parallelism, or the ranks of a
/// tp group would send the same rows (Megatron-LM arguments.py requires it too).
class Moe {
public:
    Moe(const Mixture& mixture, const LayerSite& site);

    /// The weights that have copies in fp8, for refresh().
    void add_copied(std::vector<CopiedWeight>& into) const;
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, MoeSaved& saved) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, MoeSaved& saved) const;

    // forward() and backward() in two steps each. The host reads nothing between the first and the last of choose() and of
    // choose_backward(), unless copies are dropped and not padded: CUDA graphs can hold them. combine() begins with reading the
    // counts. `saved` of all four is the same; tensors that choose() saves are missing there if a graph holds them.

    [[nodiscard]] ChosenRows choose(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, ChosenUpTo up_to,
                                    MoeSaved& saved) const;
    /// `x`: as choose() got it.
    [[nodiscard]] Tensor combine(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, ChosenRows chosen,
                                 MoeSaved& saved) const;
    [[nodiscard]] ChosenGradients combine_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                                   ChosenUpTo up_to, MoeSaved& saved) const;
    /// Consumes what choose() saved.
    [[nodiscard]] Tensor choose_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                         ChosenGradients gradients, MoeSaved& saved) const;

private:
    /// `x`: the layer's input; `normed`: the output of the norm before the branches.
    [[nodiscard]] ChosenRows choose_rows(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x,
                                         const Tensor& normed, ChosenUpTo up_to, MoeSaved::Mixture& saved) const;
    /// Counts, sorting and copies: from ChosenUpTo::router to ChosenUpTo::permuted.
    void permute(const RankContext& context, const MicrobatchContext& microbatch, ChosenRows& chosen) const;
    /// `rows`: of the layer's input.
    [[nodiscard]] Tensor mix(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows, ChosenRows chosen,
                             MoeSaved::Mixture& saved) const;
    [[nodiscard]] Tensor normalise(const RankContext& context, const Tensor& x, NormStatistics& statistics) const;

    Mixture mixture_;
    Norms norms_;
    ResidualPath residual_;
    EnumSet<RecomputeModule> recompute_;
    Weight norm_weight_, norm_bias_;
    Router router_;
    /// True if a backward reads the norm's output.
    [[nodiscard]] bool reads_normed(const MoeSaved& saved) const {
        const bool by_shared = shared_ && (!saved.mixture || shared_->reads_input(saved.mixture->shared));
        const bool by_latent = mixture_.latent > 0 && to_latent_.reads_input();
        return router_.trained() || by_shared || by_latent || mixture_.branch_norms;
    }

    DuplicatedLinear to_latent_, from_latent_;  ///< without a latent neither is called
    AllToAllDispatcher dispatcher_;
    Experts experts_;
    std::optional<SharedExperts> shared_;
    StreamNorm behind_;
    StreamNorm router_norm_, experts_norm_, behind_experts_, behind_shared_;  ///< without branch norms they pass on what they get
};

}  // namespace mgplan::model
