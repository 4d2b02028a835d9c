#include "model/layers/moe.hpp"

#include "model/layers/residual.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/errors.hpp"

namespace mgplan::model {
namespace {

/// One value for each copy, as rows that can travel.
Tensor as_rows(const Tensor& values) {
    return values.view({values.elements(), 1});
}

Tensor as_list(const Tensor& rows) {
    return rows.view({rows.elements()});
}

}  // namespace

Moe::Moe(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
         EnumSet<RecomputeModule> recompute)
    : model_(model),
      layer_(layer),
      recompute_(recompute),
      norm_weight_(weights.at(prefix + "pre_mlp_layernorm.weight")),
      norm_bias_(weights.find(prefix + "pre_mlp_layernorm.bias")),
      router_(model, weights, prefix + "mlp.router.", layer),
      dispatcher_(model, layer),
      experts_(model, weights, prefix + "mlp.experts.", recompute) {
    if (model.moe->shared_ffn > 0) shared_.emplace(model, weights, prefix + "mlp.shared_experts.", recompute);
}

Tensor Moe::mix(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed, MoeSaved::Mixture& saved) const {
    MGPLAN_ASSERT(context.tp->size() == 1 || context.sequence_parallel, "with tp > 1 mixtures need sequence parallelism");
    const std::int64_t top_k = model_.moe->top_k;
    Tensor shared;
    if (shared_) shared = shared_->forward(context, normed, saved.shared);
    router_.forward(context, microbatch, normed, saved.router);
    saved.plan = dispatcher_.plan(context, microbatch, saved.router.kept);
    const Permutation& permutation = saved.plan.permutation;
    const Tensor row_weights = as_list(
        dispatcher_.to_experts(context, saved.plan, as_rows(permute_probabilities(saved.router.routing.probabilities, permutation))));
    Tensor outputs = experts_.forward(context, dispatcher_.to_experts(context, saved.plan, permute_rows(normed, permutation, top_k)),
                                      row_weights, saved.plan.per_expert, saved.experts);
    outputs = dispatcher_.from_experts(context, saved.plan, std::move(outputs));
    Tensor y = unpermute_rows(outputs, permutation, normed.shape()[0], top_k);
    if (shared_) add(shared, y);
    return y;
}

Tensor Moe::mix_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, const Tensor& normed,
                         MoeSaved::Mixture& saved) const {
    const std::int64_t top_k = model_.moe->top_k, rows = normed.shape()[0];
    const Permutation& permutation = saved.plan.permutation;
    ExpertGradients gradients = experts_.backward(
        context, dispatcher_.to_experts(context, saved.plan, permute_rows(dy, permutation, top_k)), saved.plan.per_expert, saved.experts);
    Tensor d_rows = dispatcher_.from_experts(context, saved.plan, std::move(gradients.rows));
    Tensor d_normed = unpermute_rows(d_rows, permutation, rows, top_k);
    d_rows = Tensor();
    const Tensor d_copies = as_list(dispatcher_.from_experts(context, saved.plan, as_rows(gradients.row_weights)));
    const Tensor d_probabilities = unpermute_probabilities(d_copies, permutation, rows, top_k);
    add(router_.backward(context, microbatch, d_probabilities, normed, saved.router), d_normed);
    if (shared_) add(shared_->backward(context, dy, normed, saved.shared), d_normed);
    return d_normed;
}

Tensor Moe::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, MoeSaved& saved) const {
    saved.x = x;
    saved.normed = norm(x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, saved.statistics);
    const Tensor y = mix(context, microbatch, saved.normed, saved.mixture.emplace());
    if (recompute_.contains(RecomputeModule::moe)) saved.mixture.reset();
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = Tensor();
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::mlp, y, x);
}

Tensor Moe::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, MoeSaved& saved) const {
    if (!saved.normed.defined()) {
        NormStatistics again;
        saved.normed = norm(saved.x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, again);
    }
    // All of it again, its output and traffic included, as a checkpoint around the layer does (moe_layer.py, forward).
    if (!saved.mixture) (void)mix(context, microbatch, saved.normed, saved.mixture.emplace());
    Tensor d_normed = mix_backward(context, microbatch, residual_backward(context, microbatch, model_, layer_, ResidualPlace::mlp, dy),
                                   saved.normed, *saved.mixture);
    saved.mixture.reset();
    saved.normed = {};
    Tensor dx = norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, model_.normalization, norm_weight_.gradient,
                              norm_bias_.gradient);
    d_normed = {};
    add(dy, dx);  // the residual path
    saved = {};
    return dx;
}

}  // namespace mgplan::model
