#include "model/layers/context.hpp"

#include <utility>

#include "model/ops/checks.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

Tensor gradient_or_room(const Weight& weight) {
    if (!weight.defined() || weight.trained()) return weight.gradient;
    return weight.value.device().empty(weight.value.shape(), statistics_dtype(weight.value.dtype()), MemoryCategory::workspace,
                                       "sums of a frozen weight");
}

void WeightTable::add(const std::string& name, Weight weight) {
    const bool fresh = weights_.emplace(name, std::move(weight)).second;
    MGPLAN_ASSERT(fresh, "weights have different names");
}

const Weight& WeightTable::at(const std::string& name) const {
    const auto found = weights_.find(name);
    MGPLAN_ASSERT(found != weights_.end(), "the weight exists: " + name);
    return found->second;
}

Weight WeightTable::find(const std::string& name) const {
    const auto found = weights_.find(name);
    return found == weights_.end() ? Weight{} : found->second;
}

void WeightTable::add_of_experts(const std::string& name, std::size_t experts, Weight weight) {
    const bool fresh = of_experts_.emplace(name, OfExperts{std::move(weight), experts}).second;
    MGPLAN_ASSERT(fresh, "weights have different names");
}

WeightTable::OfExperts WeightTable::find_of_experts(const std::string& name) const {
    const auto found = of_experts_.find(name);
    return found == of_experts_.end() ? OfExperts{} : found->second;
}

LayerSite layer_site(const ModelSpec& model, Layer layer, const WeightTable& weights, std::string prefix, std::int64_t number,
                     EnumSet<RecomputeModule> recompute) {
    return {.layer = std::move(layer),
            .hidden = model.hidden,
            .max_positions = model.max_positions,
            .layers = model.layers,
            .weights = weights,
            .prefix = std::move(prefix),
            .number = number,
            .recompute = recompute};
}

Positions positions_of(const RankContext& context, const MicrobatchContext& microbatch) {
    return zigzag_positions(microbatch.sequence, microbatch.batch, context.cp->size(), context.cp->rank());
}

}  // namespace mgplan::model
