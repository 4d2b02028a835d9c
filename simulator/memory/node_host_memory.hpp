#pragma once
// Host memory that the ranks of one node use for offloaded data.

#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"

namespace mgplan::simulator {

/// Bytes on the fullest node, if each rank of a stage offloads `of_stage` bytes. `gpus`: per node.
[[nodiscard]] std::int64_t fullest_node_host_bytes(const Layout& layout, const std::vector<std::int64_t>& of_stage, std::int64_t gpus);

}  // namespace mgplan::simulator
