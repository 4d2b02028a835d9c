#include "model/layers/lightning_attention.hpp"

#include <cmath>
#include <numbers>
#include <utility>

#include "model/layers/whole_width_norm.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/gated_norm.hpp"

namespace mgplan::model {
namespace {

/// The default of MiniMaxRMSNorm, whatever the model's epsilon is.
constexpr double kNormEpsilon = 1e-6;

/// The blocks of a row of the projection: v, k and q, which the scan sees as x, B and C, then the output's gates.
Columns gates_of_output(const StateSpaceSizes& sizes) {
    return {sizes.width(), sizes.inner()};
}

Tensor in_front_of_silu(const Tensor& projected, const StateSpaceSizes& sizes) {
    return columns(projected, 0, sizes.width());
}

GatedNormOptions gate_alone(const StateSpaceSizes& sizes) {
    return {.group = sizes.inner(), .sigmoid_gate = true};
}

}  // namespace

LightningAttention::LightningAttention(const mgplan::LightningAttention& mixer, const LayerSite& site)
    : number_(site.number),
      layers_(site.layers),
      mixer_(mixer),
      ends_(site, "self_attention.in_proj"),
      norm_weight_(site.weights.at(site.prefix + "self_attention.out_norm.weight")),
      projection_(site.weights.at(site.prefix + "self_attention.in_proj.weight"), {}),
      output_(site.weights.at(site.prefix + "self_attention.out_proj.weight"), {}) {}

StateSpaceSizes LightningAttention::sizes_of(const RankContext& context, const MicrobatchContext& microbatch,
                                             const Tensor& projected) const {
    const std::int64_t heads = mixer_.heads / context.tp->size();
    // get_slope_rate(): 2^(-8 (head + 1) / heads) · (1 - layer / (layers - 1) + 1e-5), with 1e-5 added to layers - 1 too.
    constexpr double kApart = 1e-5;
    const double deep = static_cast<double>(number_) / (static_cast<double>(layers_ - 1) + kApart);
    return {.places = projected.shape()[0] / microbatch.batch,
            .batch = microbatch.batch,
            .heads = heads,
            .head_dim = mixer_.head_dim,
            .groups = heads,
            .state = mixer_.head_dim,
            .fixed = {.factor = 1 - deep + kApart,
                      .slope = 8 * std::numbers::ln2 / static_cast<double>(mixer_.heads),
                      .first_head = heads * context.tp->rank()}};
}

Tensor LightningAttention::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.projected = projection_.forward(context, ends_.enter(context, x, saved));
    const StateSpaceSizes sizes = sizes_of(context, microbatch, saved.projected);
    saved.scanned = state_space_scan({.mixed = activation(in_front_of_silu(saved.projected, sizes), Activation::silu, false)}, sizes);
    saved.normalised =
        WholeWidthNorm(context, Normalization::rms_norm, kNormEpsilon, norm_weight_, no_bias_).forward(saved.scanned, saved.statistics);
    Tensor none;
    saved.gated = gated_norm(saved.normalised, saved.projected, gates_of_output(sizes), {}, gate_alone(sizes), none);
    return ends_.leave(context, microbatch, output_.forward(context, saved.gated), x, saved);
}

Tensor LightningAttention::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_gated = output_.backward(context, ends_.backward_into(context, microbatch, dy, saved), saved.gated);
    saved.gated = {};
    const StateSpaceSizes sizes = sizes_of(context, microbatch, saved.projected);
    // The gate and silu write all columns of it between them.
    Tensor d_projected = context.device->empty(saved.projected.shape(), saved.projected.dtype(), MemoryCategory::activations,
                                               "gradient of the mixer's projection");
    Tensor d_normalised =
        gated_norm_backward(d_gated, saved.normalised, saved.projected, gates_of_output(sizes), {}, {}, gate_alone(sizes), d_projected, {});
    d_gated = saved.normalised = {};
    Tensor d_scanned = WholeWidthNorm(context, Normalization::rms_norm, kNormEpsilon, norm_weight_, no_bias_)
                           .backward(d_normalised, saved.scanned, saved.statistics);
    d_normalised = saved.scanned = {};
    saved.statistics = {};
    Tensor raw = in_front_of_silu(saved.projected, sizes);
    saved.projected = {};
    Tensor d_mixed = state_space_scan_backward(d_scanned, {.mixed = activation(raw, Activation::silu, false)}, sizes, {}, {});
    d_scanned = {};
    Tensor d_raw = activation_backward(d_mixed, raw, Activation::silu, false);
    d_mixed = raw = {};
    set_columns(d_raw, d_projected, 0);
    d_raw = {};
    Tensor d_normed = projection_.backward(context, d_projected, saved.normed);
    d_projected = {};
    Tensor dx = ends_.backward_out(context, dy, std::move(d_normed), saved);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
