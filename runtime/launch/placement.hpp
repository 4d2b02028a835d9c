#pragma once
// Checks that ranks are on the machines where the plan assumed them.

#include <span>
#include <string>

namespace mgplan::runtime {

/// Checks the machines' names (by rank): each machine in turn must hold `ranks_per_node` ranks of consecutive numbers. Returns one
/// sentence that names the first rank on another machine; empty if there is none.
[[nodiscard]] std::string placement_problem(std::span<const std::string> node_of_rank, int ranks_per_node);

}  // namespace mgplan::runtime
