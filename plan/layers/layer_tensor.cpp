#include "plan/layers/layer_tensor.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace mgplan {

LayerTensor& LayerTensor::starts_by_taps(std::int64_t taps) {
    return starts(InitialValues::by_taps, 1 / std::sqrt(static_cast<double>(taps)));
}

LayerTensor& TensorLister::add(std::string_view name, std::vector<std::int64_t> shape) {
    LayerTensor& tensor = tensors_.emplace_back();
    tensor.name = prefix_ + std::string(name);
    tensor.shape = std::move(shape);
    return tensor;
}

LayerTensor& TensorLister::replicated(std::string_view name, std::vector<std::int64_t> shape, PartialGradient partial) {
    LayerTensor& tensor = add(name, std::move(shape));
    tensor.partial_gradient = partial;
    return tensor;
}

LayerTensor& TensorLister::sharded(std::string_view name, std::vector<std::int64_t> shape, int axis, int equal_blocks) {
    LayerTensor& tensor = add(name, std::move(shape));
    tensor.shard_axis = axis;
    tensor.equal_blocks = equal_blocks;
    return tensor;
}

LayerTensor& TensorLister::sharded_blocks(std::string_view name, std::vector<std::int64_t> blocks, std::vector<std::int64_t> rest) {
    rest.insert(rest.begin(), std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0}));
    LayerTensor& tensor = sharded(name, std::move(rest), 0);
    tensor.blocks = std::move(blocks);
    return tensor;
}

void TensorLister::norm(std::string_view stem, std::int64_t width, PartialGradient partial) {
    if (!norms_.norm.weight) return;
    replicated(std::string(stem) + "weight", {width}, partial);
    if (norms_.norm.bias) replicated(std::string(stem) + "bias", {width}, partial);
}

void TensorLister::sharded_norm(std::string_view stem, std::int64_t width) {
    sharded(std::string(stem) + "weight", {width}, 0);
    if (norms_.norm.bias) sharded(std::string(stem) + "bias", {width}, 0);
}

void TensorLister::norm_before_mixer(std::string_view stem) {
    if (norms_.before) norm(stem, hidden_);
}

void TensorLister::norm_before_feed_forward(std::string_view stem) {
    if (norms_.before && norms_.order != LayerOrder::parallel_shared_norm) norm(stem, hidden_);
}

}  // namespace mgplan
