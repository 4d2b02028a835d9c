#include "model/layers/gemma3n_layer.hpp"

#include <utility>

#include "model/ops/alternating_updates.hpp"
#include "model/ops/elementwise.hpp"

namespace mgplan::model {
namespace {

/// Attention without the layer's inputs, which follow the corrections.
mgplan::GemmaAttention without_inputs(mgplan::GemmaAttention attention) {
    attention.layer_input_width = 0;
    return attention;
}

}  // namespace

StreamRouter::StreamRouter(const LayerSite& site)
    : norm_(site, site.prefix + "mixer.streams.router_norm."), values_(site.weights.at(site.prefix + "mixer.streams.router.weight")) {}

Tensor StreamRouter::forward(const RankContext& context, const Tensor& x, Saved& saved) const {
    saved.normed = norm_.forward(context, x, saved.norm);
    saved.squashed = squash(values_.forward(context, saved.normed));
    return saved.squashed;
}

Tensor StreamRouter::backward(const RankContext& context, const Tensor& dy, Saved& saved) const {
    const Tensor d_normed = values_.backward(context, squash_backward(dy, saved.squashed), saved.normed);
    Tensor dx = norm_.backward(d_normed, saved.norm);
    saved = {};
    return dx;
}

Gemma3nLayer::Gemma3nLayer(const mgplan::Gemma3nLayer& mixer, const LayerSite& site)
    : streams_(mixer.streams),
      router_(site),
      prediction_(site.weights.at(site.prefix + "mixer.streams.prediction.weight")),
      correction_(site.weights.at(site.prefix + "mixer.streams.correction.weight")),
      output_scale_(site.weights.at(site.prefix + "mixer.streams.output_scale")),
      attention_(without_inputs(mixer.attention), site),
      mlp_(mixer.mlp, site, "mixer.", mixer.mlp_zero_share > 0),
      inputs_(site, mixer.attention.layer_input_width, "mixer.") {}

Tensor Gemma3nLayer::forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const {
    saved.x = x;
    saved.matrices = prediction_.forward(context, router_.forward(context, stream_of(x, streams_, 0), saved.before));
    saved.predictions = predict_streams(x, saved.matrices, streams_);
    const Tensor attended = attention_.forward(context, microbatch, stream_of(saved.predictions, streams_, 0), saved.attention);
    saved.activated = mlp_.forward(context, microbatch, attended, attended, saved.mlp);
    saved.corrections = correction_.forward(context, router_.forward(context, saved.activated, saved.behind));
    Tensor streams = correct_streams(saved.predictions, saved.activated, saved.corrections);
    const Tensor first = stream_of(streams, streams_, 0);
    saved.corrected = weigh_corrected(first, output_scale_.value);
    add_to_further_streams(inputs_.forward(context, saved.corrected, saved.inputs), streams, streams_);
    return streams;
}

Tensor Gemma3nLayer::correction_backward(const RankContext& context, const Tensor& dy, Saved& saved) const {
    {
        const Tensor d_inputs = sum_of_further_streams(dy, streams_);
        const Tensor d_corrected =
            context.device->zeros(saved.corrected.shape(), saved.corrected.dtype(), MemoryCategory::activations, "gradient of a stream");
        inputs_.backward(context, d_inputs, d_corrected, saved.inputs);
        weigh_corrected_backward(d_corrected, stream_of(saved.predictions, streams_, 0), saved.activated, output_scale_.value,
                                 stream_of(dy, streams_, 0), output_scale_.gradient);
        saved.corrected = {};
    }
    CorrectionGradients gradients = correct_streams_backward(dy, saved.predictions, saved.activated, saved.corrections);
    saved.activated = saved.corrections = {};
    const Tensor d_values = correction_.backward(context, gradients.d_weights, saved.behind.squashed);
    add(router_.backward(context, d_values, saved.behind), gradients.dy);
    return std::move(gradients.dy);
}

Tensor Gemma3nLayer::backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const {
    {
        const Tensor d_attended = mlp_.backward(context, microbatch, correction_backward(context, dy, saved), saved.mlp);
        add(attention_.backward(context, microbatch, d_attended, saved.attention), stream_of(dy, streams_, 0));
        saved.predictions = {};
    }
    PredictionGradients gradients = predict_streams_backward(dy, saved.x, saved.matrices, streams_);
    const Tensor d_values = prediction_.backward(context, gradients.d_matrices, saved.before.squashed);
    add(router_.backward(context, d_values, saved.before), stream_of(gradients.dx, streams_, 0));
    saved = {};
    return std::move(gradients.dx);
}

}  // namespace mgplan::model
