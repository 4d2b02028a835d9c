#include "model/optimizer/fp8_parameters.hpp"

#include "model/device/device.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/fp8_history.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

Fp8Parameters::Fp8Parameters(Device& device, std::vector<Named> weights, Communicator& shards)
    : weights_(std::move(weights)), shards_(shards) {
    MGPLAN_ASSERT(!weights_.empty(), "there are weights in fp8");
    const bool followed = copies(0).followed.has_value();
    if (!followed)
        scales_ =
            device.zeros({std::ssize(weights_), kFp8ScaleElements}, Dtype::fp32, MemoryCategory::parameters, "scales of weights in fp8");
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        MGPLAN_ASSERT(copies(i).stored && copies(i).followed.has_value() == followed, "weights are stored in fp8, with scales of one kind");
        index_of_.emplace(weights_[i].first, i);
        const auto at = static_cast<std::int64_t>(i);
        if (!followed) copies(i).values.scale = scales_.slice(at, at + 1).view({kFp8ScaleElements});
    }
}

Tensor Fp8Parameters::largest(std::size_t index) const {
    const Fp8Weight& weight = copies(index);
    return weight.followed ? weight.followed->weight.largest : weight.values.scale.slice(0, 1);
}

void Fp8Parameters::begin(std::size_t index) const {
    const Tensor& values = weights_[index].second.value;
    raise_largest(values, largest(index));
    quantise(values, copies(index).values);
}

void Fp8Parameters::cast(std::span<const Optimizer::Owned> owned) const {
    if (scales_.defined()) fill(scales_, 0);
    std::vector<bool> has_part(weights_.size());
    std::vector<RaisedLargest> raised;
    std::vector<Fp8Cast> parts, others;
    for (const Optimizer::Owned& part : owned) {
        const auto found = index_of_.find(part.description);
        if (found == index_of_.end()) continue;
        const Fp8Tensor& values = copies(found->second).values;
        const Tensor codes = values.codes.view({values.codes.elements()});
        has_part[found->second] = true;
        raised.push_back({part.rounded, largest(found->second)});
        parts.push_back({part.rounded, {codes.slice(part.in_parameter, part.in_parameter + part.rounded.elements()), values.scale}});
    }
    raise_all_largest(raised);
    if (scales_.defined() && shards_.size() > 1) shards_.all_reduce(scales_, Reduction::maximum);
    quantise_all(parts);
    // A weight without a part here also needs the inverse factor, which a cast writes: one value is cast, to a code that the gather
    // overwrites.
    for (std::size_t i = 0; i < weights_.size(); ++i) {
        const Fp8Tensor& values = copies(i).values;
        if (!has_part[i])
            others.push_back({values.scale.slice(0, 1), {values.codes.view({values.codes.elements()}).slice(0, 1), values.scale}});
    }
    quantise_all(others);
}

}  // namespace mgplan::model
