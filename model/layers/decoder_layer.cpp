#include "model/layers/decoder_layer.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace mgplan::model {

DecoderLayer::DecoderLayer(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
                           EnumSet<RecomputeModule> recompute)
    : attention_(model, weights, prefix, layer, recompute) {
    if (model.is_moe_layer(std::min(layer, model.layers - 1)))
        moe_.emplace(model, weights, prefix, layer, recompute);
    else
        mlp_.emplace(model, weights, prefix + "mlp.", layer, recompute);
}

GraphedPart DecoderLayer::graphed(const RankContext& context) const {
    return context.graphs == nullptr ? GraphedPart::none : context.graphs->part(moe_.has_value());
}

Tensor DecoderLayer::attend(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Range range(*context.device, "attention forward");
    return attention_.forward(context, microbatch, x, saved.attention);
}

Tensor DecoderLayer::transform(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    const Range range(*context.device, "mlp forward");
    return moe_ ? moe_->forward(context, microbatch, x, saved.moe) : mlp_->forward(context, microbatch, x, saved.mlp);
}

Tensor DecoderLayer::attend_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved) const {
    const Range range(*context.device, "attention backward");
    Tensor dx = attention_.backward(context, microbatch, dy, saved.attention);
    dy = {};  // within the range: traces put it there
    return dx;
}

Tensor DecoderLayer::transform_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved) const {
    const Range range(*context.device, "mlp backward");
    Tensor d_attended = moe_ ? moe_->backward(context, microbatch, dy, saved.moe) : mlp_->backward(context, microbatch, dy, saved.mlp);
    dy = {};
    return d_attended;
}

Tensor DecoderLayer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved,
                             const UnitEvents& events, const GraphPlace& place, bool leaves) const {
    const GraphedPart part = graphed(context);
    if (part == GraphedPart::whole) {
        events.before_use(0);
        events.before_use(1);
        return context.graphs->forward(place, x, leaves, saved.graph, [&](std::vector<Tensor> inputs) {
            const Tensor attended = attend(context, microbatch, inputs.front(), saved);
            return std::vector<Tensor>{transform(context, microbatch, attended, saved)};
        });
    }
    Tensor attended;
    events.before_use(0);
    if (part == GraphedPart::attention) {
        attended = context.graphs->forward(place, x, true, saved.graph, [&](std::vector<Tensor> inputs) {
            return std::vector<Tensor>{attend(context, microbatch, inputs.front(), saved)};
        });
    } else {
        attended = attend(context, microbatch, x, saved);
    }
    events.before_use(1);
    if (part == GraphedPart::mlp) {
        return context.graphs->forward(place, attended, true, saved.graph, [&](std::vector<Tensor> inputs) {
            return std::vector<Tensor>{transform(context, microbatch, inputs.front(), saved)};
        });
    }
    return transform(context, microbatch, attended, saved);
}

Tensor DecoderLayer::backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                              const UnitEvents& events, const GraphPlace& place) const {
    const GraphedPart part = graphed(context);
    const auto whole = [&](std::vector<Tensor> inputs) {
        Tensor d_attended = transform_backward(context, microbatch, std::move(inputs.front()), saved);
        return std::vector<Tensor>{attend_backward(context, microbatch, std::move(d_attended), saved)};
    };
    if (part == GraphedPart::whole) {
        Tensor dx = context.graphs->backward(place, std::move(dy), saved.graph, whole);
        events.after_backward(1);
        events.after_backward(0);
        return dx;
    }
    Tensor gradient;
    if (part == GraphedPart::mlp) {
        gradient = context.graphs->backward(place, std::move(dy), saved.graph, [&](std::vector<Tensor> inputs) {
            return std::vector<Tensor>{transform_backward(context, microbatch, std::move(inputs.front()), saved)};
        });
    } else {
        gradient = transform_backward(context, microbatch, std::move(dy), saved);
    }
    events.after_backward(1);
    if (part == GraphedPart::attention) {
        gradient = context.graphs->backward(place, std::move(gradient), saved.graph, [&](std::vector<Tensor> inputs) {
            return std::vector<Tensor>{attend_backward(context, microbatch, std::move(inputs.front()), saved)};
        });
    } else {
        gradient = attend_backward(context, microbatch, std::move(gradient), saved);
    }
    events.after_backward(0);
    return gradient;
}

}  // namespace mgplan::model
