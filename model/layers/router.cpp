#include "model/layers/router.hpp"

#include <cmath>

#include "model/layers/deferred_gradients.hpp"
#include "model/layers/expert_bias.hpp"
#include "model/layers/routing_log.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/linear.hpp"
#include "model/ops/matmul.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Ranks that have the same rows choose the same experts.
constexpr ProductAlgorithm kAlike = ProductAlgorithm::first;

}  // namespace

std::int64_t expert_capacity(const Mixture& mixture, std::int64_t rows) {
    if (mixture.capacity_factor == 0) return 0;
    const double wanted =
        std::ceil(static_cast<double>(rows * mixture.top_k) / static_cast<double>(mixture.experts) * mixture.capacity_factor);
    return wanted < static_cast<double>(rows) ? static_cast<std::int64_t>(wanted) : rows;
}

Router::Router(const Mixture& mixture, const LayerSite& site)
    : mixture_(mixture),
      number_(site.number),
      weight_(site.weights.at(site.prefix + "mlp.router.weight")),
      bias_(site.weights.find(site.prefix + "mlp.router.bias")) {}

std::int64_t Router::all_rows(const RankContext& context, const Tensor& logits) const {
    return logits.shape()[0] * context.tp_cp->size();
}

void Router::forward(const RankContext& context, const MicrobatchContext& /*microbatch*/, const Tensor& x, RouterSaved& saved) const {
    const Range range(*context.device, "router forward");
    {
        constexpr std::string_view kName = "router logits";  // (rows, experts)
        const Tensor logits = bias_.defined() ? linear(x, weight_.value, bias_.value, kName, kAlike, context.biases_in_products)
                                              : matmul(x, weight_.value, {.b = true}, kName, kAlike);
        const ExpertChoice choice{mixture_.groups, mixture_.group_top_k, mixture_.group_scores, mixture_.normalize_top_k,
                                  context.expert_biases != nullptr ? context.expert_biases->of(number_) : Tensor()};
        saved.routing = route(logits, mixture_.top_k, mixture_.score, context.balanced_routing, choice);
    }
    if (context.routing_log != nullptr && !context.balanced_routing) context.routing_log->watch(saved.routing);
    if (mixture_.auxiliary_loss > 0) {
        // router.py, _apply_aux_loss: choices of the whole microbatch, scores of this rank's rows.
        saved.copies = count_by_expert(saved.routing.experts, mixture_.experts);
        context.tp_cp->all_reduce(saved.copies, Reduction::sum);
    }
    const std::int64_t capacity = expert_capacity(mixture_, x.shape()[0]);
    saved.kept = capacity > 0 ? keep_within_capacity(saved.routing, capacity) : saved.routing.experts;
}

Tensor Router::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_probabilities, const Tensor& x,
                        const RouterSaved& saved) const {
    const Range range(*context.device, "router backward");
    Tensor d_logits = route_backward(d_probabilities, saved.routing, mixture_.score, mixture_.normalize_top_k);
    if (mixture_.auxiliary_loss > 0) {
        auxiliary_loss_backward(saved.routing.scores, mixture_.score, saved.copies, all_rows(context, d_logits), mixture_.top_k,
                                mixture_.auxiliary_loss, microbatch.d_auxiliary, d_logits);
        if (context.auxiliary_loss.defined())
            auxiliary_loss(saved.routing.scores, mixture_.score, saved.copies, all_rows(context, d_logits), mixture_.top_k, 1,
                           context.auxiliary_loss);
    }
    if (context.expert_biases != nullptr) context.expert_biases->count(number_, saved.routing.experts);
    if (d_logits.dtype() != weight_.value.dtype()) {
        const Tensor narrow =
            context.device->empty(d_logits.shape(), weight_.value.dtype(), MemoryCategory::activations, "router logit gradient");
        copy(d_logits, narrow);
        d_logits = narrow;
    }
    if (!weight_.trained()) return matmul(d_logits, weight_.value, {}, "input gradient");
    const bool in_product = bias_.defined() && context.biases_in_products && sums_columns_in_product(d_logits, x, weight_.gradient);
    if (bias_.defined() && !in_product) bias_gradient(d_logits, bias_.gradient);
    add_weight_gradient(context, [this, d_logits, x, in_product] {  // (experts, hidden)
        if (in_product) return linear_gradients(d_logits, x, weight_.gradient, true, bias_.gradient, kAlike);
        matmul_accumulate(d_logits, x, {.a = true}, weight_.gradient, kAlike);
    });
    return matmul(d_logits, weight_.value, {}, "input gradient");
}

}  // namespace mgplan::model
