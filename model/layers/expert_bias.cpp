#include "model/layers/expert_bias.hpp"

#include <algorithm>
#include <functional>

#include "plan/errors.hpp"

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
    for (const std::int64_t layer : layers) {
        layers_[layer] = {device.zeros({experts}, dtype, MemoryCategory::parameters, "expert bias"),
                          std::vector<std::int64_t>(static_cast<std::size_t>(experts))};
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

void ExpertBiases::count(std::int64_t layer, const std::vector<std::int64_t>& choices) {
    auto& sums = layers_.at(layer).choices;
    MGPLAN_ASSERT(choices.size() == sums.size(), "there is a count for each expert");
    std::transform(sums.begin(), sums.end(), choices.begin(), sums.begin(), std::plus<>());
}

void ExpertBiases::update(Communicator& ranks, double rate) {
    if (layers_.empty()) return;
    // Counts travel as int32, all layers at once.
    std::vector<std::int32_t> choices;
    for (auto& [number, layer] : layers_) {
        choices.insert(choices.end(), layer.choices.begin(), layer.choices.end());
        std::fill(layer.choices.begin(), layer.choices.end(), 0);
    }
    const Tensor all =
        device_.empty({std::ssize(layers_), experts_}, Dtype::int32, MemoryCategory::communication, "choices of each expert");
    device_.write(all, choices.data());
    ranks.all_reduce(all, Reduction::sum);
    if (!device_.computes()) return;
    device_.read(all, choices.data());
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
