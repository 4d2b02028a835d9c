#include "model/layers/routing_log.hpp"

#include <algorithm>
#include <functional>

#include "model/device/device.hpp"
#include "model/ops/checks.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

const RoutingTable& RoutingLog::at(const RoutingPlace& place) const {
    const auto found = tables_.find(place);
    if (found == tables_.end() && !assumed_.empty()) return assumed_;
    MGPLAN_ASSERT(found != tables_.end(), "the run recorded this pass through the mixture");
    return found->second;
}

void RoutingLog::watch(const Routing& routing) {
    Device& device = routing.scores.device();
    if (!watches_ || !device.computes()) return;
    // Read without conversion: a tensor on the device would be in the measurement and not in the prediction.
    std::vector<double> scores(static_cast<std::size_t>(routing.scores.elements()));
    if (routing.scores.dtype() == Dtype::fp64) {
        device.read(routing.scores, scores.data());
    } else {
        expect_dtype(routing.scores, Dtype::fp32, "watched scores");
        std::vector<float> narrow(scores.size());
        device.read(routing.scores, narrow.data());
        std::copy(narrow.begin(), narrow.end(), scores.begin());
    }
    const std::int64_t experts = routing.scores.shape()[1], top_k = routing.experts.shape()[1];
    if (top_k == experts) return;
    for (auto row = scores.begin(); row != scores.end(); row += experts) {
        std::partial_sort(row, row + top_k + 1, row + experts, std::greater<>());
        smallest_margin_ = std::min(smallest_margin_, row[top_k - 1] - row[top_k]);
    }
}

}  // namespace mgplan::model
