#include "model/layers/fp8_delayed.hpp"

#include "model/device/device.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/fp8_history.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

constexpr std::int64_t kTensors = 3;
constexpr double kLargestOfE5m2 = 57344;

}  // namespace

std::int64_t fp8_delayed_bytes() {
    return kTensors * (1 + kFp8ScaleElements + kFp8HistoryLength + 1) * bytes_of(Dtype::fp32);
}

Fp8Delayed::Fp8Delayed(Device& device, const std::vector<Weight>& weights, double unit) : weights_(std::ssize(weights)), unit_(unit) {
    const std::int64_t tensors = kTensors * weights_;
    const auto zeros = [&](const Shape& shape, std::string_view name) {
        return device.zeros(shape, Dtype::fp32, MemoryCategory::parameters, name);
    };
    now_ = zeros({tensors}, "largest magnitudes of a step");
    history_ = zeros({tensors, kFp8HistoryLength + 1}, "largest magnitudes of the steps before");
    scales_ = zeros({tensors, kFp8ScaleElements}, "scales of fp8");
    // Casts of gradients begin with 1 / unit; 0 stands for 1.
    fill(scales_.slice(2 * weights_, tensors), kLargestOfE5m2 * unit);
    const auto part = [&](std::int64_t kind, std::int64_t weight) {
        const std::int64_t i = kind * weights_ + weight;
        return Fp8Followed{scales_.slice(i, i + 1).view({kFp8ScaleElements}), now_.slice(i, i + 1),
                           scales_.slice(i, (kind + 1) * weights_)};
    };
    for (std::int64_t i = 0; i < weights_; ++i) {
        Fp8Weight& copies = *weights[static_cast<std::size_t>(i)].fp8;
        copies.followed = Fp8Weight::Followed{part(0, i), part(1, i), part(2, i)};
        copies.values.scale = copies.followed->weight.scale;
    }
}

void Fp8Delayed::follow() {
    const std::int64_t plain = 2 * weights_, all = kTensors * weights_;
    model::follow_largest(now_.slice(0, plain), history_.slice(0, plain), scales_.slice(0, plain), 1);
    model::follow_largest(now_.slice(plain, all), history_.slice(plain, all), scales_.slice(plain, all), unit_);
}

void Fp8Delayed::update(std::initializer_list<Communicator*> groups) {
    if (weights_ == 0) return;
    for (Communicator* const group : groups) {
        if (group->size() > 1) group->all_reduce(now_, Reduction::maximum);
    }
    follow();
}

void Fp8Delayed::go_on() {
    if (weights_ == 0) return;
    fill(now_, 0);  // where weights are stored in fp8, those that a training begins with were cast
    follow();
}

std::vector<Fp8Delayed::History> Fp8Delayed::histories(std::int64_t weight) const {
    MGPLAN_ASSERT(weight < weights_, "a weight of this rank");
    std::vector<History> list;
    for (const char* const name : {"fp8_input", "fp8_weight", "fp8_gradient"}) {
        const std::int64_t i = std::ssize(list) * weights_ + weight;
        list.push_back({name, history_.slice(i, i + 1).view({kFp8HistoryLength + 1})});
    }
    return list;
}

}  // namespace mgplan::model
