#include "model/layers/decoder_layer.hpp"

#include <tuple>
#include <utility>
#include <vector>

#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

namespace {

/// If streams are recomputed, so are separate norms before a half, with or without the module layernorm, but not those that
/// belong to a linear layer (Megatron-LM, transformer_layer.py, mhc_checkpoint_input_layernorm): for all of a block together, so that the
/// half itself keeps its norm's output and the steps of a chunk free it.
LayerSite without_norm(LayerSite site, bool with_streams) {
    if (with_streams) site.recompute.remove(RecomputeModule::layernorm);
    return site;
}

}  // namespace

DecoderLayer::DecoderLayer(const LayerSite& site) : beside_(site.layer.norms.order != LayerOrder::sequential) {
    const Layer& layer = site.layer;
    const bool repeats_norms = site.recompute.contains(RecomputeModule::mhc) && layer.norms.before;
    if (layer.mixer) {
        const bool alone =
            std::holds_alternative<LatentAttention>(*layer.mixer) || std::holds_alternative<mgplan::CompressedAttention>(*layer.mixer);
        const bool repeats = repeats_norms && alone;
        mixer_.emplace(std::visit([&](const auto& kind) { return half_of<TokenMixer>(kind, without_norm(site, repeats)); }, *layer.mixer));
        if (layer.residual.hyper_connections)
            attention_streams_.emplace(site, "self_attention_hyper_connection.", repeats ? "input_layernorm." : "");
    }
    if (!layer.feed_forward) return;
    const bool repeats = repeats_norms && std::holds_alternative<Mixture>(*layer.feed_forward);
    feed_forward_.emplace(
        std::visit([&](const auto& kind) { return half_of<FeedForward>(kind, without_norm(site, repeats)); }, *layer.feed_forward));
    if (layer.residual.hyper_connections) mlp_streams_.emplace(site, "mlp_hyper_connection.", repeats ? "pre_mlp_layernorm." : "");
}

bool DecoderLayer::Saved::kept() const {
    const auto keeps = []<class One>(const One& one) {
        if constexpr (requires { one.norm.x; })
            return one.norm.x.defined();
        else
            return one.x.defined();
    };
    return keeps(mlp) || keeps(moe) || std::apply([&](const auto&... one) { return (keeps(one) || ...); }, mixer);
}

const Moe* DecoderLayer::mixture() const {
    return feed_forward_ ? std::get_if<Moe>(&*feed_forward_) : nullptr;
}

GraphedPart DecoderLayer::graphed(const RankContext& context) const {
    return context.graphs == nullptr ? GraphedPart::none : context.graphs->part(mixture() != nullptr);
}

void DecoderLayer::refresh_mixer() const {
    std::vector<CopiedWeight> copied;
    const auto* const attention = mixer_ ? std::get_if<SelfAttention>(&*mixer_) : nullptr;
    if (attention != nullptr) attention->add_copied(copied);
    refresh(copied);
}

void DecoderLayer::refresh_feed_forward() const {
    std::vector<CopiedWeight> copied;
    if (feed_forward_) std::visit([&](const auto& half) { half.add_copied(copied); }, *feed_forward_);
    refresh(copied);
}

Tensor DecoderLayer::attend(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    if (!mixer_) return x;
    const Range range(*context.device, "attention forward");
    const Tensor input = attention_streams_ ? attention_streams_->enter(context, x, saved.attention_streams) : x;
    Tensor y = std::visit(
        [&]<class Mixer>(const Mixer& mixer) {
            return mixer.forward(context, microbatch, input, std::get<typename Mixer::Saved>(saved.mixer));
        },
        *mixer_);
    return attention_streams_ ? attention_streams_->leave(context, std::move(y), saved.attention_streams) : y;
}

Tensor DecoderLayer::transform(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& attended,
                               Saved& saved) const {
    if (!feed_forward_) return attended;
    const Range range(*context.device, "mlp forward");
    const Tensor input = mlp_streams_ ? mlp_streams_->enter(context, attended, saved.mlp_streams) : attended;
    const Moe* const moe = mixture();
    Tensor y = moe != nullptr ? moe->forward(context, microbatch, input, saved.moe)
                              : std::get<Mlp>(*feed_forward_).forward(context, microbatch, beside_ ? x : input, input, saved.mlp);
    return mlp_streams_ ? mlp_streams_->leave(context, std::move(y), saved.mlp_streams) : y;
}

Tensor DecoderLayer::attend_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                                     Tensor of_mlp) const {
    if (!mixer_) return dy;
    const Range range(*context.device, "attention backward");
    if (attention_streams_) dy = attention_streams_->leave_backward(context, dy, saved.attention_streams);
    Tensor dx = std::visit(
        [&]<class Mixer>(const Mixer& mixer) {
            return mixer.backward(context, microbatch, dy, std::get<typename Mixer::Saved>(saved.mixer));
        },
        *mixer_);
    if (of_mlp.defined()) add(of_mlp, dx);
    of_mlp = {};
    dy = {};  // within the range: traces put it there
    if (attention_streams_) dx = attention_streams_->enter_backward(context, std::move(dx), saved.attention_streams);
    return dx;
}

Tensor DecoderLayer::transform_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved) const {
    if (!feed_forward_) return dy;
    const Range range(*context.device, "mlp backward");
    if (mlp_streams_) dy = mlp_streams_->leave_backward(context, dy, saved.mlp_streams);
    const Moe* const moe = mixture();
    Tensor d_attended = moe != nullptr ? moe->backward(context, microbatch, dy, saved.moe)
                                       : std::get<Mlp>(*feed_forward_).backward(context, microbatch, dy, saved.mlp);
    dy = {};
    if (mlp_streams_) d_attended = mlp_streams_->enter_backward(context, std::move(d_attended), saved.mlp_streams);
    return d_attended;
}

namespace {

ChosenUpTo chosen_up_to(const RankContext& context) {
    return context.graphs->captures_preprocess() ? ChosenUpTo::permuted : ChosenUpTo::router;
}

/// Returns the name of a layer's or its attention's output; empty if a graph reads it next, which has counted it as its input.
std::string_view name_of_stream(bool leaves) {
    return leaves ? "hidden_states" : "";
}

}  // namespace

Tensor DecoderLayer::forward_to_router(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved,
                                       const GraphPlace& place, bool with_attention) const {
    const ChosenUpTo up_to = chosen_up_to(context);
    const bool permuted = up_to == ChosenUpTo::permuted;
    // Without the attention the residual is the graph's input.
    std::vector<Tensor> outputs = context.graphs->forward(place, x, saved.graph, [&](const Tensor& input) {
        Tensor attended = with_attention ? attend(context, microbatch, input, saved) : input;
        const Range range(*context.device, "mlp forward");
        ChosenRows chosen = mixture()->choose(context, microbatch, attended, up_to, saved.moe);
        return std::vector<GraphOutput>{{"residual", with_attention ? std::move(attended) : Tensor()},
                                        {permuted ? "permuted_hidden_states" : "hidden_states", std::move(chosen.hidden)},
                                        {"probabilities", std::move(chosen.probabilities)},
                                        {"routing_map", std::move(chosen.choices)},
                                        {"reversed_permutation_map", std::move(chosen.source)},
                                        {"tokens_per_expert", std::move(chosen.counts)},
                                        {"shared_experts_output", std::move(chosen.shared)}};
    });
    const Range range(*context.device, "mlp forward");
    const Tensor attended = with_attention ? outputs[0] : x;
    ChosenRows chosen{up_to,
                      std::move(outputs[1]),
                      std::move(outputs[2]),
                      std::move(outputs[3]),
                      std::move(outputs[4]),
                      std::move(outputs[5]),
                      std::move(outputs[6])};
    return mixture()->combine(context, microbatch, attended, std::move(chosen), saved.moe);
}

Tensor DecoderLayer::backward_from_router(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                                          const GraphPlace& place, bool with_attention) const {
    const ChosenUpTo up_to = chosen_up_to(context);
    std::vector<Tensor> gradients;
    {
        const Range range(*context.device, "mlp backward");
        ChosenGradients of_chosen = mixture()->combine_backward(context, microbatch, dy, up_to, saved.moe);
        gradients = {std::move(dy), std::move(of_chosen.hidden), std::move(of_chosen.probabilities)};
        if (of_chosen.shared.defined()) gradients.push_back(std::move(of_chosen.shared));
    }
    Tensor dx = context.graphs->backward(place, std::move(gradients), saved.graph, [&](std::vector<Tensor> inputs) {
        Tensor d_attended;
        {
            const Range range(*context.device, "mlp backward");
            const Tensor d_output = std::move(inputs[0]);
            ChosenGradients of_chosen{up_to, std::move(inputs[1]), std::move(inputs[2]), {}};
            if (inputs.size() > 3) of_chosen.shared = std::move(inputs[3]);
            d_attended = mixture()->choose_backward(context, microbatch, d_output, std::move(of_chosen), saved.moe);
        }
        if (with_attention) d_attended = attend_backward(context, microbatch, std::move(d_attended), saved);
        return std::vector<Tensor>{std::move(d_attended)};
    });
    saved.moe = {};  // tensors saved by eager work
    return dx;
}

Tensor DecoderLayer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved,
                             const UnitEvents& events, const GraphPlace& place, bool leaves) const {
    const GraphedPart part = graphed(context);
    const auto run = [&](const Tensor& input, std::string_view name, const auto& body) {
        return std::move(context.graphs
                             ->forward(place, input, saved.graph,
                                       [&](const Tensor& given) {
                                           return std::vector<GraphOutput>{{name, body(given)}};
                                       })
                             .front());
    };
    const auto attends = [&](const Tensor& input) { return attend(context, microbatch, input, saved); };
    const auto transforms = [&](const Tensor& input) { return transform(context, microbatch, x, input, saved); };
    // Refreshed outside of graphs, which would cast in every replay.
    events.before_use(0);
    refresh_mixer();
    if (part == GraphedPart::whole || part == GraphedPart::attention_router) {
        events.before_use(1);
        refresh_feed_forward();
    }
    if (part == GraphedPart::attention_router) return forward_to_router(context, microbatch, x, saved, place, true);
    if (part == GraphedPart::whole) {
        return run(x, name_of_stream(leaves), [&](const Tensor& input) {
            const Tensor attended = attends(input);
            return transform(context, microbatch, input, attended, saved);
        });
    }
    const Tensor attended = part == GraphedPart::attention ? run(x, name_of_stream(true), attends) : attends(x);
    events.before_use(1);
    refresh_feed_forward();
    if (ends_at_router(part)) return forward_to_router(context, microbatch, attended, saved, place, false);
    return part == GraphedPart::mlp ? run(attended, name_of_stream(leaves), transforms) : transforms(attended);
}

Tensor DecoderLayer::backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                              const UnitEvents& events, const GraphPlace& place) const {
    const GraphedPart part = graphed(context);
    const auto run = [&](Tensor gradient, const auto& body) {
        std::vector<Tensor> gradients;
        gradients.push_back(std::move(gradient));
        return context.graphs->backward(place, std::move(gradients), saved.graph,
                                        [&](std::vector<Tensor> inputs) { return std::vector<Tensor>{body(std::move(inputs.front()))}; });
    };
    const auto attends = [&](Tensor gradient, Tensor of_mlp = {}) {
        return attend_backward(context, microbatch, std::move(gradient), saved, std::move(of_mlp));
    };
    const auto transforms = [&](Tensor gradient) { return transform_backward(context, microbatch, std::move(gradient), saved); };
    // Both halves take the output's gradient, and what each gives of the input's is added.
    const auto both_beside = [&](Tensor gradient) {
        Tensor of_mlp = transforms(gradient);
        return attends(std::move(gradient), std::move(of_mlp));
    };
    if (part == GraphedPart::whole || part == GraphedPart::attention_router) {
        Tensor dx = part == GraphedPart::whole
                        ? run(std::move(dy),
                              [&](Tensor gradient) {
                                  return beside_ ? both_beside(std::move(gradient)) : attends(transforms(std::move(gradient)));
                              })
                        : backward_from_router(context, microbatch, std::move(dy), saved, place, true);
        events.after_backward(1);
        events.after_backward(0);
        return dx;
    }
    if (beside_) {
        MGPLAN_ASSERT(part == GraphedPart::none, "graphs hold layers with both halves beside each other whole");
        Tensor of_mlp = transforms(dy);
        events.after_backward(1);
        Tensor dx = attends(std::move(dy), std::move(of_mlp));
        events.after_backward(0);
        return dx;
    }
    Tensor gradient;
    if (ends_at_router(part))
        gradient = backward_from_router(context, microbatch, std::move(dy), saved, place, false);
    else
        gradient = part == GraphedPart::mlp ? run(std::move(dy), transforms) : transforms(std::move(dy));
    events.after_backward(1);
    gradient = part == GraphedPart::attention ? run(std::move(gradient), attends) : attends(std::move(gradient));
    events.after_backward(0);
    return gradient;
}

}  // namespace mgplan::model
