#include "simulator/memory/node_host_memory.hpp"

#include <algorithm>

#include "plan/layout/stage_ranks.hpp"

namespace mgplan::simulator {

std::int64_t fullest_node_host_bytes(const Layout& layout, const std::vector<std::int64_t>& of_stage, std::int64_t gpus) {
    const std::int64_t world = layout.sizes.world;
    const bool each_in_one_stage = layout.sizes.pp == 1 || first_rank_of_stage(layout.sizes, 1) % gpus == 0;
    if (each_in_one_stage) return std::min(gpus, world) * *std::max_element(of_stage.begin(), of_stage.end());
    std::int64_t most = 0;
    for (std::int64_t first = 0; first < world; first += gpus) {
        std::int64_t sum = 0;
        for (std::int64_t rank = first; rank < std::min(world, first + gpus); ++rank)
            sum += of_stage[static_cast<std::size_t>(stage_of_rank(layout.sizes, rank))];
        most = std::max(most, sum);
    }
    return most;
}

}  // namespace mgplan::simulator
