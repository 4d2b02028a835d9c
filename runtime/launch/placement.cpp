#include "runtime/launch/placement.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/core.h>

namespace mgplan::runtime {

std::string placement_problem(std::span<const std::string> node_of_rank, int ranks_per_node) {
    constexpr std::string_view kWayOut =
        "let ranks fill machines one after the other (srun --distribution=block:block --ntasks-per-node, mpirun --map-by ppr:N:node), or "
        "say "
        "how many are on each";
    const auto per_node = static_cast<std::size_t>(ranks_per_node);
    std::map<std::string_view, std::size_t> first_of;
    for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
        const std::size_t leader = rank / per_node * per_node;
        const std::string& node = node_of_rank[rank];
        if (node != node_of_rank[leader]) {
            return fmt::format("the plan has {} ranks on a machine, and of ranks {} to {} rank {} is on {} but rank {} on {}; {}", per_node,
                               leader, std::min(leader + per_node, node_of_rank.size()) - 1, leader, node_of_rank[leader], rank, node,
                               kWayOut);
        }
        const auto [known, fresh] = first_of.emplace(node, leader);
        if (!fresh && known->second != leader) {
            return fmt::format("the plan has {} ranks on a machine, and {} holds rank {} with ranks {} to {}; {}", per_node, node, rank,
                               known->second, known->second + per_node - 1, kWayOut);
        }
    }
    return "";
}

}  // namespace mgplan::runtime
