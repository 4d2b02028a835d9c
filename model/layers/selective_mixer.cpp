#include "model/layers/selective_mixer.hpp"

#include <utility>

#include "model/ops/causal_conv.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"

namespace mgplan::model {
namespace {

/// The channels of a projection that the convolution reads; the same number of gates follows them.
Columns convolved_half(const Tensor& projected) {
    return {0, projected.shape()[1] / 2};
}

}  // namespace

SelectiveMixer::SelectiveMixer(const Mamba& mixer, const LayerSite& site)
    : mixer_(mixer),
      ends_(site, "mixer.in_proj"),
      conv_weight_(site.weights.at(site.prefix + "mixer.conv1d_weight")),
      conv_bias_(site.weights.find(site.prefix + "mixer.conv1d_bias")),
      maps_weight_(site.weights.at(site.prefix + "mixer.x_proj.weight")),
      steps_weight_(site.weights.at(site.prefix + "mixer.dt_proj.weight")),
      step_bias_(site.weights.at(site.prefix + "mixer.dt_bias")),
      log_decay_(site.weights.at(site.prefix + "mixer.A_log")),
      skip_(site.weights.at(site.prefix + "mixer.D")),
      norm_weights_{site.weights.find(site.prefix + "mixer.dt_norm.weight"), site.weights.find(site.prefix + "mixer.B_norm.weight"),
                    site.weights.find(site.prefix + "mixer.C_norm.weight")},
      projection_(site.weights.at(site.prefix + "mixer.in_proj.weight"), {}),
      output_(site.weights.at(site.prefix + "mixer.out_proj.weight"), {}) {}

SelectiveScanInputs SelectiveMixer::scan_inputs(const Saved& saved, const MicrobatchContext& microbatch) const {
    return {.x = saved.convolved,
            .steps = saved.steps,
            .write = saved.maps[1],
            .read = saved.maps[2],
            .gates = saved.projected,
            .gate_begin = convolved_half(saved.projected).width,
            .step_bias = step_bias_.value,
            .log_decay = log_decay_.value,
            .skip = skip_.value,
            .batch = microbatch.batch};
}

Tensor SelectiveMixer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.projected = projection_.forward(context, ends_.enter(context, x, saved));
    saved.convolved = causal_conv(saved.projected, convolved_half(saved.projected), conv_weight_.value, conv_bias_.value, microbatch.batch);
    {
        const Tensor joined = matmul(saved.convolved, maps_weight_.value, {.b = true}, "steps and maps");  // (rows, dt_rank + 2 state)
        if (context.tp->size() > 1) context.tp->all_reduce(joined, Reduction::sum);
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < saved.maps.size(); ++i) {
            const std::int64_t width = i == 0 ? mixer_.dt_rank : mixer_.state_size;
            saved.maps[i] = columns(joined, begin, begin + width);
            begin += width;
        }
    }
    for (std::size_t i = 0; normed() && i < saved.maps.size(); ++i) {
        saved.mapped[i] = std::move(saved.maps[i]);
        saved.maps[i] =
            norm(saved.mapped[i], norm_weights_[i].value, {}, Normalization::rms_norm, context.norm_epsilon, saved.statistics[i]);
    }
    saved.steps = matmul(saved.maps[0], steps_weight_.value, {.b = true}, "raw steps");  // (rows, channels)
    saved.scan = selective_scan(scan_inputs(saved, microbatch));
    return ends_.leave(context, microbatch, output_.forward(context, saved.scan.gated), x, saved);
}

Tensor SelectiveMixer::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    // Each tensor is freed right after its last read, as autograd does.
    Tensor d_gated = output_.backward(context, ends_.backward_into(context, microbatch, dy, saved), saved.scan.gated);
    saved.scan.gated = {};
    // The scan and the convolution write all columns of it between them.
    Tensor d_projected = context.device->empty(saved.projected.shape(), saved.projected.dtype(), MemoryCategory::activations,
                                               "gradient of the mixer's projection");
    SelectiveScanGradients gradients = selective_scan_backward(d_gated, scan_inputs(saved, microbatch), saved.scan, d_projected,
                                                               step_bias_.gradient, log_decay_.gradient, skip_.gradient);
    d_gated = {};
    saved.scan = {};
    saved.steps = {};
    Tensor d_convolved = back_through_maps(context, std::move(gradients), saved);
    saved.convolved = {};
    causal_conv_backward(d_convolved, saved.projected, convolved_half(saved.projected), conv_weight_.value, conv_bias_.value,
                         microbatch.batch, d_projected, conv_weight_.gradient, conv_bias_.gradient);
    d_convolved = saved.projected = {};
    Tensor dx = ends_.backward_out(context, dy, projection_.backward(context, d_projected, saved.normed), saved);
    saved = {};
    return dx;
}

Tensor SelectiveMixer::back_through_maps(const RankContext& context, SelectiveScanGradients gradients, Saved& saved) const {
    std::array<Tensor, 3> d_maps{matmul(gradients.steps, steps_weight_.value, {}, "input gradient"), std::move(gradients.write),
                                 std::move(gradients.read)};
    matmul_accumulate(gradients.steps, saved.maps[0], {.a = true}, steps_weight_.gradient);
    gradients.steps = {};
    const std::int64_t rows = saved.convolved.shape()[0];
    const Tensor joined = context.device->empty({rows, mixer_.dt_rank + 2 * mixer_.state_size}, saved.convolved.dtype(),
                                                MemoryCategory::activations, "gradient of steps and maps");
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < d_maps.size(); ++i) {
        if (normed())
            d_maps[i] = norm_backward(d_maps[i], saved.mapped[i], norm_weights_[i].value, saved.statistics[i], Normalization::rms_norm,
                                      norm_weights_[i].gradient, {});
        set_columns(d_maps[i], joined, begin);
        begin += d_maps[i].shape()[1];
        d_maps[i] = saved.mapped[i] = saved.maps[i] = {};
        saved.statistics[i] = {};
    }
    // Until here the sums hold this rank's channels alone.
    if (context.tp->size() > 1) context.tp->all_reduce(joined, Reduction::sum);
    matmul_accumulate(joined, saved.convolved, {.a = true}, maps_weight_.gradient);
    Tensor d_convolved = matmul(joined, maps_weight_.value, {}, "input gradient");  // (rows, channels)
    add(gradients.x, d_convolved);
    return d_convolved;
}

}  // namespace mgplan::model
