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
      norm_weight_(weights.at(prefix + "mixer.in_proj.layer_norm_weight")),
      norm_bias_(weights.find(prefix + "mixer.in_proj.layer_norm_bias")),
      conv_weight_(weights.at(prefix + "mixer.conv.weight")),
      projection_(weights.at(prefix + "mixer.in_proj.weight"), {}),
      output_(weights.at(prefix + "mixer.out_proj.weight"), {}) {}

Tensor ShortConvolution::normalised(const RankContext& context, const Tensor& x, NormStatistics& statistics) const {
    return norm(x, norm_weight_.value, norm_bias_.value, model_.normalization, context.norm_epsilon, statistics);
}

Tensor ShortConvolution::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.x = x;
    saved.normed = normalised(context, x, saved.statistics);
    saved.projected = projection_.forward(context, saved.normed);
    saved.mixed = short_conv(saved.projected, conv_weight_.value, microbatch.batch);
    const Tensor y = output_.forward(context, saved.mixed);
    if (recompute_.contains(RecomputeModule::layernorm)) saved.normed = Tensor();
    return add_residual(context, microbatch, model_, layer_, ResidualPlace::attention, y, x);
}

Tensor ShortConvolution::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    if (!saved.normed.defined()) {
        const Range range(*context.device, "recompute");
        NormStatistics again;
        saved.normed = normalised(context, saved.x, again);
    }
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
    Tensor dx = norm_backward(d_normed, saved.x, norm_weight_.value, saved.statistics, model_.normalization, norm_weight_.gradient,
                              norm_bias_.gradient);
    d_normed = {};
    add(dy, dx);  // the residual path
    saved = {};
    return dx;
}

}  // namespace mgplan::model
