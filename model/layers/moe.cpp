#include "model/layers/moe.hpp"

#include <utility>

#include "model/layers/offload.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Returns one value for each copy as rows, which can be sent.
Tensor as_rows(const Tensor& values) {
    return values.view({values.elements(), 1});
}

Tensor as_list(const Tensor& rows) {
    return rows.view({rows.elements()});
}

/// Returns true if copies' weights are scaled: by a factor, or by one for each expert, which is implemented for shapes alone.
bool scales_weights(const Mixture& mixture) {
    return mixture.routed_scaling != 1 || mixture.branch_norms;
}

/// Moves inputs of modules, by one of the functions of model/layers/offload.hpp.
void move_inputs(const RankContext& context, const MoeSaved& saved, void (*move)(const RankContext&, ModuleInputs)) {
    using enum OffloadModule;
    const bool kept = saved.mixture.has_value();
    move(context, {{mlp_norm, saved.x},
                   {expert_fc1, kept ? saved.mixture->experts.rows.x : Tensor()},
                   {moe_act, kept ? saved.mixture->experts.before : Tensor()}});
}

}  // namespace

Moe::Moe(const Mixture& mixture, const LayerSite& site)
    : mixture_(mixture),
      norms_(site.layer.norms),
      residual_(site, ResidualPlace::mlp),
      recompute_(site.recompute),
      norm_weight_(site.weights.find(site.prefix + "pre_mlp_layernorm.weight")),
      norm_bias_(site.weights.find(site.prefix + "pre_mlp_layernorm.bias")),
      router_(mixture, site),
      to_latent_(site.weights.find(site.prefix + "mlp.fc1_latent_proj.weight")),
      from_latent_(site.weights.find(site.prefix + "mlp.fc2_latent_proj.weight")),
      dispatcher_(mixture, site),
      experts_(mixture, site),
      behind_(site, site.prefix + "post_mlp_layernorm."),
      router_norm_(site, site.prefix + "mlp.router.layer_norm_"),
      experts_norm_(site, site.prefix + "mlp.experts.layer_norm_"),
      behind_experts_(site, site.prefix + "mlp.post_experts_layernorm."),
      behind_shared_(site, site.prefix + "mlp.post_shared_experts_layernorm.") {
    if (mixture.shared_ffn > 0) shared_.emplace(mixture, site);
}

void Moe::add_copied(std::vector<CopiedWeight>& into) const {
    if (mixture_.latent > 0) {
        to_latent_.add_copied(into);
        from_latent_.add_copied(into);
    }
    experts_.add_copied(into);
    if (shared_) shared_->add_copied(into);
}

Tensor Moe::normalise(const RankContext& context, const Tensor& x, NormStatistics& statistics) const {
    if (!norms_.before) return x;
    return norm(x, norm_weight_.value, norm_bias_.value, norms_.norm.kind, context.norm_epsilon, statistics);
}

ChosenRows Moe::choose_rows(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& normed,
                            ChosenUpTo up_to, MoeSaved::Mixture& saved) const {
    MGPLAN_ASSERT(context.tp->size() == 1 || context.sequence_parallel, "with tp > 1 mixtures need sequence parallelism");
    const bool own_norms = mixture_.branch_norms;
    ChosenRows chosen;
    if (shared_) chosen.shared = behind_shared_.forward(context, shared_->forward(context, normed, saved.shared), saved.behind_shared);
    if (own_norms) saved.router_input = router_norm_.forward(context, x, saved.router_norm);
    router_.forward(context, microbatch, own_norms ? saved.router_input : normed, saved.router);
    const Tensor rows = own_norms ? experts_norm_.forward(context, x, saved.experts_norm) : normed;
    chosen.up_to = ChosenUpTo::router;
    chosen.hidden = mixture_.latent > 0 ? to_latent_.forward(context, rows) : rows;
    chosen.probabilities = saved.router.routing.probabilities;
    chosen.choices = saved.router.kept;
    if (up_to == ChosenUpTo::permuted) permute(context, microbatch, chosen);
    return chosen;
}

void Moe::permute(const RankContext& context, const MicrobatchContext& microbatch, ChosenRows& chosen) const {
    SortedCopies sorted = dispatcher_.sort(context, microbatch, chosen.choices);
    chosen.probabilities = permute_probabilities(chosen.probabilities, sorted.permutation);
    // Only the copies are scaled: the router's backward needs its own probabilities as they are.
    if (scales_weights(mixture_)) scale(chosen.probabilities, mixture_.routed_scaling);
    chosen.hidden = permute_rows(chosen.hidden, sorted.permutation, mixture_.top_k);
    chosen.choices = Tensor();
    chosen.source = std::move(sorted.permutation.source);
    chosen.counts = std::move(sorted.counts);
    chosen.up_to = ChosenUpTo::permuted;
}

Tensor Moe::mix(const RankContext& context, const MicrobatchContext& microbatch, std::int64_t rows, ChosenRows chosen,
                MoeSaved::Mixture& saved) const {
    if (chosen.up_to == ChosenUpTo::router) permute(context, microbatch, chosen);
    saved.permutation.source = std::move(chosen.source);
    saved.plan = dispatcher_.plan(context, microbatch, chosen.counts, rows);
    chosen.counts = Tensor();
    const Tensor row_weights = as_list(dispatcher_.to_experts(context, saved.plan, as_rows(std::exchange(chosen.probabilities, {}))));
    Tensor routed = dispatcher_.to_experts(context, saved.plan, std::exchange(chosen.hidden, {}));
    Tensor outputs = experts_.forward(context, std::move(routed), row_weights, saved.plan.per_expert, saved.experts);
    outputs = dispatcher_.from_experts(context, saved.plan, std::move(outputs));
    Tensor y = unpermute_rows(outputs, saved.permutation, rows, mixture_.top_k);
    if (mixture_.latent > 0 || mixture_.branch_norms) outputs = {};
    if (mixture_.latent > 0) {
        saved.combined = from_latent_.input(y);
        y = from_latent_.forward(context, saved.combined);
        saved.combined.end_forward();
    }
    y = behind_experts_.forward(context, y, saved.behind_experts);
    if (shared_) add(chosen.shared, y);
    return y;
}

ChosenRows Moe::choose(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, ChosenUpTo up_to,
                       MoeSaved& saved) const {
    saved.x = x;
    saved.normed = normalise(context, x, saved.statistics);
    ChosenRows chosen = choose_rows(context, microbatch, x, saved.normed, up_to, saved.mixture.emplace());
    const bool drops = recompute_.contains(RecomputeModule::layernorm) || !reads_normed(saved);
    if (drops && !residual_.carries_normed()) saved.normed = Tensor();
    return chosen;
}

Tensor Moe::combine(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, ChosenRows chosen,
                    MoeSaved& saved) const {
    if (!saved.mixture) saved.mixture.emplace();  // the rest of it is a graph's
    const Tensor y = mix(context, microbatch, x.shape()[0], std::move(chosen), *saved.mixture);
    if (recompute_.contains(RecomputeModule::moe)) saved.mixture.reset();
    const Tensor path = residual_.carried(x, saved.normed);
    if (recompute_.contains(RecomputeModule::layernorm) || !reads_normed(saved)) saved.normed = Tensor();
    return residual_.sum(context, microbatch, behind_.forward(context, y, saved.behind), path);
}

ChosenGradients Moe::combine_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, ChosenUpTo up_to,
                                      MoeSaved& saved) const {
    MoeSaved::Mixture& mixture = *saved.mixture;
    const std::int64_t top_k = mixture_.top_k, rows = dy.shape()[0];
    ChosenGradients gradients;
    Tensor d_y = behind_.backward(residual_.backward(context, microbatch, dy), saved.behind);
    if (shared_) gradients.shared = d_y;
    d_y = behind_experts_.backward(d_y, mixture.behind_experts);
    if (mixture_.latent > 0) d_y = from_latent_.backward(context, d_y, std::exchange(mixture.combined, {}));
    ExpertGradients of_experts =
        experts_.backward(context, dispatcher_.to_experts(context, mixture.plan, permute_rows(d_y, mixture.permutation, top_k)),
                          mixture.plan.per_expert, mixture.experts);
    d_y = Tensor();
    gradients.hidden = dispatcher_.from_experts(context, mixture.plan, std::move(of_experts.rows));
    gradients.probabilities = as_list(dispatcher_.from_experts(context, mixture.plan, as_rows(std::exchange(of_experts.row_weights, {}))));
    if (up_to == ChosenUpTo::permuted) return gradients;
    gradients.up_to = up_to;
    gradients.hidden = unpermute_rows(gradients.hidden, mixture.permutation, rows, top_k);
    gradients.probabilities = unpermute_probabilities(gradients.probabilities, mixture.permutation, rows, top_k);
    return gradients;
}

Tensor Moe::choose_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, ChosenGradients gradients,
                            MoeSaved& saved) const {
    MoeSaved::Mixture& mixture = *saved.mixture;
    const std::int64_t top_k = mixture_.top_k, rows = dy.shape()[0];
    if (!saved.normed.defined() && reads_normed(saved)) {
        const Range range(*context.device, "recompute");
        NormStatistics again;
        saved.normed = normalise(context, saved.x, again);
    }
    Tensor d_normed = std::exchange(gradients.hidden, {});
    if (gradients.up_to == ChosenUpTo::permuted) {
        d_normed = unpermute_rows(d_normed, mixture.permutation, rows, top_k);
        gradients.probabilities = unpermute_probabilities(gradients.probabilities, mixture.permutation, rows, top_k);
    }
    if (mixture_.latent > 0) d_normed = to_latent_.backward(context, d_normed, saved.normed);
    if (scales_weights(mixture_)) scale(gradients.probabilities, mixture_.routed_scaling);
    Tensor d_own;  // of the layer's input, through norms of the branches' own
    if (mixture_.branch_norms) {
        d_own = experts_norm_.backward(std::exchange(d_normed, {}), mixture.experts_norm);
        Tensor d_router =
            router_.backward(context, microbatch, gradients.probabilities, std::exchange(mixture.router_input, {}), mixture.router);
        add(router_norm_.backward(std::exchange(d_router, {}), mixture.router_norm), d_own);
        d_normed =
            shared_->backward(context, behind_shared_.backward(gradients.shared, mixture.behind_shared), saved.normed, mixture.shared);
    } else {
        add(router_.backward(context, microbatch, gradients.probabilities, saved.normed, mixture.router), d_normed);
        if (shared_) add(shared_->backward(context, gradients.shared, saved.normed, mixture.shared), d_normed);
    }
    gradients = {};
    mixture.router = {};
    mixture.shared = {};
    saved.normed = {};
    residual_.add_to_normed(dy, d_normed);
    const Tensor path = d_own.defined() ? Tensor() : residual_.in_norm(context, dy);
    Tensor dx = norms_.before ? norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, norms_.norm.kind,
                                              norm_weight_.gradient, norm_bias_.gradient, path)
                              : d_normed;
    d_normed = {};
    if (d_own.defined()) add(std::exchange(d_own, {}), dx);
    if (!path.defined()) residual_.add_to_input(dy, dx);
    saved.x = {};
    saved.statistics = {};
    return dx;
}

Tensor Moe::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, MoeSaved& saved) const {
    ChosenRows chosen = choose(context, microbatch, x, ChosenUpTo::permuted, saved);
    Tensor sum = combine(context, microbatch, x, std::move(chosen), saved);
    move_inputs(context, saved, inputs_to_host);
    return sum;
}

Tensor Moe::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, MoeSaved& saved) const {
    move_inputs(context, saved, inputs_from_host);
    if (!saved.mixture) {
        const Range range(*context.device, "recompute");
        // Runs the layer again, with its output and traffic, as a checkpoint around it does (moe_layer.py, forward).
        if (!saved.normed.defined()) {
            NormStatistics again;
            saved.normed = normalise(context, saved.x, again);
        }
        MoeSaved::Mixture& mixture = saved.mixture.emplace();
        (void)mix(context, microbatch, saved.x.shape()[0],
                  choose_rows(context, microbatch, saved.x, saved.normed, ChosenUpTo::permuted, mixture), mixture);
    }
    ChosenGradients gradients = combine_backward(context, microbatch, dy, ChosenUpTo::permuted, saved);
    Tensor dx = choose_backward(context, microbatch, dy, std::move(gradients), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
