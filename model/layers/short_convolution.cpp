#include "model/layers/short_convolution.hpp"

#include <utility>

#include "model/ops/short_conv.hpp"

namespace mgplan::model {

ShortConvolution::ShortConvolution(const mgplan::ShortConvolution& /*mixer*/, const LayerSite& site)
    : ends_(site, "mixer.in_proj"),
      conv_weight_(site.weights.at(site.prefix + "mixer.conv.weight")),
      projection_(site.weights.at(site.prefix + "mixer.in_proj.weight"), {}),
      output_(site.weights.at(site.prefix + "mixer.out_proj.weight"), {}) {}

Tensor ShortConvolution::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.projected = projection_.forward(context, ends_.enter(context, x, saved));
    saved.mixed = short_conv(saved.projected, conv_weight_.value, microbatch.batch);
    return ends_.leave(context, microbatch, output_.forward(context, saved.mixed), x, saved);
}

Tensor ShortConvolution::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_mixed = output_.backward(context, ends_.backward_into(context, microbatch, dy, saved), saved.mixed);
    saved.mixed = {};
    Tensor d_projected = short_conv_backward(d_mixed, saved.projected, conv_weight_.value, microbatch.batch, conv_weight_.gradient);
    d_mixed = {};
    saved.projected = {};
    Tensor d_normed = projection_.backward(context, d_projected, saved.normed);
    d_projected = {};
    Tensor dx = ends_.backward_out(context, dy, std::move(d_normed), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
