#include "model/layers/mtp.hpp"

#include <fmt/core.h>

#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// (rows inside the tp region, hidden / tp) of every rank -> (rows outside, hidden).
Tensor gather_output(const RankContext& context, const Tensor& part) {
    Tensor whole = gather_columns(context, part);
    if (!context.sequence_parallel) return whole;
    const std::int64_t rows = whole.shape()[0] / context.tp->size(), first = rows * context.tp->rank();
    // A copy, because a slice would keep the rows of all ranks.
    Tensor own = context.device->empty({rows, whole.shape()[1]}, whole.dtype(), MemoryCategory::activations, "projected states");
    copy(whole.slice(first, first + rows), own);
    return own;
}

/// Does the backward of gather_output().
Tensor scatter_output_gradient(const RankContext& context, const Tensor& dy) {
    return own_columns(context, enter_region(context, dy));
}

/// Tokens that one depth (from 0) predicts from: the targets of the depth before.
const Tensor& tokens_between(const MicrobatchContext& microbatch, const Tensor& targets, std::size_t depth) {
    return depth == 0 ? targets : microbatch.mtp_targets[depth - 1];
}

}  // namespace

MtpDepth::MtpDepth(const ModelSpec& model, const Layer& layer, const WeightTable& weights, const std::string& prefix, std::int64_t depth,
                   EnumSet<RecomputeModule> recompute, bool recompute_all)
    : model_(model),
      number_(model.layers + depth),
      recomputes_(recompute_all),
      embedded_norm_(weights.at(prefix + "enorm.weight")),
      embedded_norm_bias_(weights.find(prefix + "enorm.bias")),
      state_norm_(weights.at(prefix + "hnorm.weight")),
      state_norm_bias_(weights.find(prefix + "hnorm.bias")),
      final_norm_(weights.at(prefix + "final_layernorm.weight")),
      final_norm_bias_(weights.find(prefix + "final_layernorm.bias")),
      projection_(weights.at(prefix + "eh_proj.weight"), Weight{}),
      layer_(layer_site(model, layer, weights, prefix + "transformer_layer.", number_, recompute)) {}

Tensor MtpDepth::run(const RankContext& context, const MicrobatchContext& microbatch, const MtpDepthSaved& saved,
                     MtpDepthSaved::Inner& inner, const UnitEvents& events) const {
    events.before_use(0);
    const std::int64_t rows = saved.state.shape()[0], hidden = model_.hidden;
    Tensor joined = context.device->empty({rows, 2 * hidden}, context.dtype, MemoryCategory::activations, "joined embeddings and states");
    set_columns(norm(saved.embedded, embedded_norm_.value, embedded_norm_bias_.value, model_.normalization, context.norm_epsilon,
                     inner.embedded_statistics),
                joined, 0);
    set_columns(
        norm(saved.state, state_norm_.value, state_norm_bias_.value, model_.normalization, context.norm_epsilon, inner.state_statistics),
        joined, hidden);
    inner.joined = projection_.input(context, joined);
    joined = {};
    const Tensor projected = gather_output(context, projection_.forward(context, inner.joined));
    inner.joined.end_forward();
    return layer_.forward(context, microbatch, projected, inner.layer, events.from(1));
}

Tensor MtpDepth::forward(const RankContext& context, const MicrobatchContext& microbatch, const VocabularyEmbedding& embedding,
                         const Tensor& ids, const Tensor& state, MtpDepthSaved& saved, const UnitEvents& events) const {
    {
        const Range range(*context.device, "mtp embedding forward");
        EmbeddingSaved nothing;  // validate() refuses a norm of embeddings with multi-token prediction
        saved.embedded = embedding.forward(context, microbatch, ids, nothing, number_);
    }
    saved.state = state;
    saved.x = run(context, microbatch, saved, saved.inner.emplace(), events);
    if (recomputes_) saved.inner.reset();
    saved.normed = norm(saved.x, final_norm_.value, final_norm_bias_.value, model_.normalization, context.norm_epsilon, saved.statistics);
    return saved.normed;
}

Tensor MtpDepth::backward(const RankContext& context, const MicrobatchContext& microbatch, const VocabularyEmbedding& embedding,
                          const Tensor& ids, const Tensor& d_next, MtpDepthSaved& saved, const UnitEvents& events) const {
    Tensor gradient = norm_backward(d_next, saved.x, final_norm_.value, saved.statistics, model_.normalization, final_norm_.gradient,
                                    final_norm_bias_.gradient);
    saved.x = {};
    if (!saved.inner) (void)run(context, microbatch, saved, saved.inner.emplace(), events);
    MtpDepthSaved::Inner& inner = *saved.inner;
    gradient = layer_.backward(context, microbatch, std::move(gradient), inner.layer, events.from(1));
    Tensor d_joined = projection_.backward(context, scatter_output_gradient(context, gradient), inner.joined);
    gradient = {};
    inner.joined = {};
    const std::int64_t hidden = model_.hidden;
    const Tensor d_embedded = norm_backward(columns(d_joined, 0, hidden), saved.embedded, embedded_norm_.value, inner.embedded_statistics,
                                            model_.normalization, embedded_norm_.gradient, embedded_norm_bias_.gradient);
    {
        const Range range(*context.device, "mtp embedding backward");
        EmbeddingSaved nothing;
        embedding.backward(context, microbatch, d_embedded, ids, nothing, number_);
    }
    const Tensor d_normed = columns(d_joined, hidden, 2 * hidden);
    d_joined = {};
    Tensor d_state = norm_backward(d_normed, saved.state, state_norm_.value, inner.state_statistics, model_.normalization,
                                   state_norm_.gradient, state_norm_bias_.gradient);
    saved = {};
    events.after_backward(0);
    return d_state;
}

Mtp::Mtp(const ModelSpec& model, const Layer& layer, const WeightTable& weights, std::int64_t depths, const Weight& output,
         EnumSet<RecomputeModule> recompute, bool recompute_all)
    : model_(model), embedding_(model, weights, "embedding."), loss_(model, output) {
    for (std::int64_t depth = 0; depth < depths; ++depth)
        depths_.emplace_back(model, layer, weights, fmt::format("mtp.layers.{}.", depth), depth, recompute, recompute_all);
}

void Mtp::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed, const Tensor& targets,
                  std::vector<MtpDepthSaved>& saved, const UnitEvents& events) const {
    MGPLAN_ASSERT(microbatch.mtp_targets.size() == depths_.size(), "every depth has targets");
    saved.resize(depths_.size());
    Tensor state = normed;
    for (std::size_t i = 0; i < depths_.size(); ++i) {
        const Range range(*context.device, "mtp forward", static_cast<std::int64_t>(i));
        const UnitEvents own = events.from(MtpDepth::kUnits * static_cast<int>(i));
        state = depths_[i].forward(context, microbatch, embedding_, tokens_between(microbatch, targets, i), state, saved[i], own);
        const Tensor losses = loss_.forward(context, saved[i].normed, microbatch.mtp_targets[i], saved[i].loss);
        if (context.losses.defined()) add_sum_of_losses(losses, context.losses, static_cast<std::int64_t>(i) + 1);
    }
}

Tensor Mtp::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& targets, double d_loss,
                     std::vector<MtpDepthSaved>& saved, const UnitEvents& events) const {
    const auto depths = static_cast<std::int64_t>(depths_.size());
    Tensor gradient;
    for (std::size_t i = depths_.size(); i-- > 0;) {
        const Range range(*context.device, "mtp backward", static_cast<std::int64_t>(i));
        const UnitEvents own = events.from(MtpDepth::kUnits * static_cast<int>(i));
        const std::int64_t with_target = microbatch.sequence - 1 - static_cast<std::int64_t>(i);
        // d_loss is that of a mean over all places.
        const double weight = with_target > 0 ? model_.mtp_loss_factor / static_cast<double>(depths) *
                                                    static_cast<double>(microbatch.sequence) / static_cast<double>(with_target)
                                              : 0;
        const Tensor d_normed = loss_.backward(context, saved[i].normed, microbatch.mtp_targets[i], d_loss * weight, saved[i].loss);
        if (gradient.defined()) add(gradient, d_normed);
        saved[i].normed = {};
        gradient = depths_[i].backward(context, microbatch, embedding_, tokens_between(microbatch, targets, i), d_normed, saved[i], own);
    }
    return gradient;
}

}  // namespace mgplan::model
