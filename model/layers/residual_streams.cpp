#include "model/layers/residual_streams.hpp"

#include <utility>

#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/stream_mixing.hpp"

namespace mgplan::model {
namespace {

/// Range of products outside of linear layers, always in the storage type, and no part of the model FLOPs that Megatron-LM prints
/// (training.py, num_floating_point_operations).
constexpr std::string_view kRange = "gate of streams";

/// Adds the gradient through maps and lengths to dx, and that of the maps' weight to its sum.
void maps_backward(const RankContext& context, const Tensor& d_raw, const Tensor& x, const Tensor& lengths, const Weight& weight,
                   const Tensor& dx) {
    const Range range(*context.device, kRange);
    const Tensor by_maps = matmul(d_raw, weight.value, {}, "residual stream gradient");
    matmul_accumulate(d_raw, x, {.a = true}, weight.gradient);
    stream_lengths_backward(x, lengths, by_maps);
    add(by_maps, dx);
}

}  // namespace

ResidualStreams::ResidualStreams(const LayerSite& site, const std::string& module, const std::string& norm)
    : sizes_(*site.layer.residual.hyper_connections),
      normalization_(site.layer.norms.norm.kind),
      projection_(site.weights.at(site.prefix + module + "mapping_proj.weight")),
      norm_weight_(site.weights.find(site.prefix + norm + "weight")),
      norm_bias_(site.weights.find(site.prefix + norm + "bias")),
      repeated_(site.recompute.contains(RecomputeModule::mhc)),
      repeats_norm_(repeated_ && !norm.empty()) {}

Tensor ResidualStreams::enter(const RankContext& context, const Tensor& x, ResidualStreamsSaved& saved) const {
    saved.x = x;
    const Range range(*context.device, kRange);
    saved.lengths = stream_lengths(x);
    saved.raw = matmul(x, projection_.value, {.b = true}, "raw stream maps");
    saved.maps = stream_maps(saved.raw, saved.lengths);
    saved.start = balance_maps(saved.maps, sizes_.streams, sizes_.sinkhorn_iterations);
    return gather_streams(x, saved.maps, sizes_.streams);
}

Tensor ResidualStreams::leave(const RankContext& context, Tensor y, ResidualStreamsSaved& saved) const {
    const Range range(*context.device, kRange);
    saved.branch = std::move(y);
    return mix_streams(saved.x, saved.branch, saved.maps);
}

Tensor ResidualStreams::leave_backward(const RankContext& context, const Tensor& d_streams, ResidualStreamsSaved& saved) const {
    if (repeated_) {
        const Range range(*context.device, "recompute");
        repeat_mixing(saved.x, saved.branch, saved.maps);
        if (repeats_norm_) repeat_norm(saved.branch, norm_weight_.value, norm_bias_.value, normalization_);
    }
    MixGradients gradients = mix_streams_backward(d_streams, saved.x, saved.branch, saved.maps);
    saved.branch = {};
    saved.dx = std::move(gradients.dx);
    saved.d_maps = std::move(gradients.d_maps);
    return std::move(gradients.dy);
}

Tensor ResidualStreams::enter_backward(const RankContext& context, Tensor d_input, ResidualStreamsSaved& saved) const {
    gather_streams_backward(d_input, saved.x, saved.maps, saved.dx, saved.d_maps);
    d_input = {};
    balance_maps_backward(saved.d_maps, saved.start, sizes_.sinkhorn_iterations);
    const Tensor d_raw = stream_maps_backward(saved.d_maps, saved.raw, saved.lengths);
    maps_backward(context, d_raw, saved.x, saved.lengths, projection_, saved.dx);
    Tensor dx = std::move(saved.dx);
    saved = {};
    return dx;
}

StreamHead::StreamHead(const ModelSpec& model, const WeightTable& weights)
    : sizes_(*model.hyper_connections), weights_(weights.find("decoder.hc_head_fn")) {}

Tensor StreamHead::forward(const RankContext& context, const Tensor& x, StreamHeadSaved& saved) const {
    if (!weights_.defined()) return sum_of_streams(x, sizes_.streams, "mean of streams");
    const Range range(*context.device, kRange);
    saved.x = x;
    saved.lengths = stream_lengths(x);
    saved.raw = matmul(x, weights_.value, {.b = true}, "raw stream maps");
    saved.maps = stream_maps(saved.raw, saved.lengths);
    return gather_streams(x, saved.maps, sizes_.streams);
}

Tensor StreamHead::backward(const RankContext& context, const Tensor& dy, StreamHeadSaved& saved) const {
    if (!weights_.defined()) return copy_to_streams(dy, sizes_.streams);
    Device& device = *context.device;
    Tensor dx = device.empty(saved.x.shape(), saved.x.dtype(), MemoryCategory::activations, "residual stream gradient");
    const Tensor d_maps = device.empty(saved.maps.shape(), saved.maps.dtype(), MemoryCategory::activations, "stream map gradient");
    gather_streams_backward(dy, saved.x, saved.maps, dx, d_maps);
    const Tensor d_raw = stream_maps_backward(d_maps, saved.raw, saved.lengths);
    maps_backward(context, d_raw, saved.x, saved.lengths, weights_, dx);
    saved = {};
    return dx;
}

}  // namespace mgplan::model
