#include "model/layers/expert_bias.hpp"

#include "model/ops/router.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

template <class Number>
void move_biases(Device& device, const Tensor& bias, const std::int32_t* choices, double rate) {
    std::vector<Number> values(static_cast<std::size_t>(bias.elements()));
    device.read(bias, values.data());
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += choices[i];
    const double mean = sum / static_cast<double>(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double missing = mean - choices[i];
        values[i] += static_cast<Number>(missing > 0 ? rate : missing < 0 ? -rate : 0);
    }
    device.write(bias, values.data());
}

}  // namespace

ExpertBiases::ExpertBiases(Device& device, const std::vector<std::int64_t>& layers, std::int64_t experts, Dtype dtype)
    : device_(device), experts_(experts) {
    if (layers.empty()) return;
    choices_ = device.zeros({std::ssize(layers), experts}, Dtype::int32, MemoryCategory::parameters, "choices of each expert");
    for (const std::int64_t layer : layers) {
        const std::int64_t row = std::ssize(layers_);
        layers_[layer] = {device.zeros({experts}, dtype, MemoryCategory::parameters, "expert bias"),
                          choices_.slice(row, row + 1).view({experts})};
    }
}

const Tensor& ExpertBiases::of(std::int64_t layer) const {
    const auto found = layers_.find(layer);
    MGPLAN_ASSERT(found != layers_.end(), "the layer is a mixture of this rank");
    return found->second.bias;
}

std::vector<std::int64_t> ExpertBiases::layers() const {
    std::vector<std::int64_t> numbers;
    for (const auto& [number, layer] : layers_) numbers.push_back(number);
    return numbers;
}

void ExpertBiases::count(std::int64_t layer, const Tensor& experts) {
    add_counts_by_expert(experts, layers_.at(layer).choices);
}

void ExpertBiases::update(Communicator& ranks, double rate) {
    if (layers_.empty()) return;
    ranks.all_reduce(choices_, Reduction::sum);  // of all layers at once
    if (!device_.computes()) return;
    std::vector<std::int32_t> choices(static_cast<std::size_t>(choices_.elements()));
    device_.read(choices_, choices.data());
    device_.write(choices_, std::vector<std::int32_t>(choices.size()).data());
    const std::int32_t* of_layer = choices.data();
    for (auto& [number, layer] : layers_) {
        if (layer.bias.dtype() == Dtype::fp64)
            move_biases<double>(device_, layer.bias, of_layer, rate);
        else
            move_biases<float>(device_, layer.bias, of_layer, rate);
        of_layer += experts_;
    }
}

}  // namespace mgplan::model
