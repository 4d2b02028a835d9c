#include "model/layers/decoder_layer.hpp"

#include <algorithm>

namespace mgplan::model {

DecoderLayer::DecoderLayer(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
                           EnumSet<RecomputeModule> recompute)
    : attention_(model, weights, prefix, layer, recompute) {
    if (model.is_moe_layer(std::min(layer, model.layers - 1)))
        moe_.emplace(model, weights, prefix, layer, recompute);
    else
        mlp_.emplace(model, weights, prefix + "mlp.", layer, recompute);
}

Tensor DecoderLayer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved,
                             const UnitEvents& events) const {
    Tensor attended;
    {
        const Range range(*context.device, "attention forward");
        events.before_use(0);
        attended = attention_.forward(context, microbatch, x, saved.attention);
    }
    const Range range(*context.device, "mlp forward");
    events.before_use(1);
    return moe_ ? moe_->forward(context, microbatch, attended, saved.moe) : mlp_->forward(context, microbatch, attended, saved.mlp);
}

Tensor DecoderLayer::backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                              const UnitEvents& events) const {
    Tensor d_attended;
    {
        const Range range(*context.device, "mlp backward");
        d_attended = moe_ ? moe_->backward(context, microbatch, dy, saved.moe) : mlp_->backward(context, microbatch, dy, saved.mlp);
        dy = {};
        events.after_backward(1);
    }
    const Range range(*context.device, "attention backward");
    Tensor dx = attention_.backward(context, microbatch, d_attended, saved.attention);
    d_attended = {};
    events.after_backward(0);
    return dx;
}

}  // namespace mgplan::model
