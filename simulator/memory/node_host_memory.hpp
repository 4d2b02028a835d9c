#pragma once
// What the ranks of one node leave in its host's memory.

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"

namespace mgplan::simulator {

/// Of the node whose ranks leave most, where each rank of a stage leaves `of_stage` bytes. `gpus`: of a node.
[[nodiscard]] std::int64_t fullest_node_host_bytes(const Layout& layout, const std::vector<std::int64_t>& of_stage, std::int64_t gpus);

}  // namespace mgplan::simulator
