#include "simulator/timeline/stragglers.hpp"

#include <algorithm>
#include <map>

#include "plan/layout/stage_ranks.hpp"

namespace mgplan::simulator {

std::vector<std::vector<double>> stage_slowdowns(const ParallelSizes& sizes, const std::vector<Straggler>& stragglers) {
    std::int64_t replica_stride = 1;
    for (const GridAxis& axis : dense_grid(sizes)) {
        if (axis.axis == Axis::dp) replica_stride = axis.stride;
    }
    std::map<std::int64_t, std::vector<double>> replicas;
    for (const Straggler& straggler : stragglers) {
        const std::int64_t replica = sizes.ep > 1 ? 0 : straggler.rank / replica_stride % sizes.dp();
        auto& factors = replicas.try_emplace(replica, static_cast<std::size_t>(sizes.pp), 1.0).first->second;
        double& factor = factors[static_cast<std::size_t>(stage_of_rank(sizes, straggler.rank))];
        factor = std::max(factor, straggler.factor);
    }
    std::vector<std::vector<double>> found;
    for (auto& [replica, factors] : replicas) {
        if (std::find(found.begin(), found.end(), factors) == found.end()) found.push_back(std::move(factors));
    }
    return found;
}

}  // namespace mgplan::simulator
