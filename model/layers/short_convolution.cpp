#include "model/layers/short_convolution.hpp"

#include "model/layers/residual.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/short_conv.hpp"

namespace mgplan::model {

ShortConvolution::ShortConvolution(const ModelSpec& model, const LayerPart& /*part*/, const WeightTable& weights, const std::string& prefix,
                                   std::int64_t layer, EnumSet<RecomputeModule> recompute)
    : model_(model),
      layer_(layer),
      recompute_(recompute),
      norm_(model, weights.at(prefix + "mixer.in_proj.layer_norm_weight"), weights.find(prefix + "mixer.in_proj.layer_norm_bias")),
      conv_weight_(weights.at(prefix + "mixer.conv.weight")),
      projection_(weights.at(prefix + "mixer.in_proj.weight"), {}),
      output_(weights.at(prefix + "mixer.out_proj.weight"), {}) {}

Tensor ShortConvolution::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.normed = norm_.forward(context, x, saved.norm);
    saved.projected = projection_.forward(context, saved.normed);
    saved.mixed = short_conv(saved.projected, conv_weight_.value, microbatch.batch);
    const Tensor y = output_.forward(context, saved.mixed);
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = Tensor();
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::attention, y, x);
}

Tensor ShortConvolution::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    if (!saved.normed.defined()) saved.normed = norm_.again(context, saved.norm);
    // Each tensor goes as soon as it was read for the last time, as autograd frees it.
    Tensor d_mixed =
        output_.backward(context, residual_backward(context, microbatch, model_, layer_, ResidualPlace::attention, dy), saved.mixed);
    saved.mixed = {};
    Tensor d_projected = short_conv_backward(d_mixed, saved.projected, conv_weight_.value, microbatch.batch, conv_weight_.gradient);
    d_mixed = {};
    saved.projected = {};
    Tensor d_normed = projection_.backward(context, d_projected, saved.normed);
    d_projected = {};
    saved.normed = {};
    Tensor dx = norm_.backward(d_normed, saved.norm);
    d_normed = {};
    add(dy, dx);  // the residual path
    saved = {};
    return dx;
}

}  // namespace mgplan::model
