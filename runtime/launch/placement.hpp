#pragma once
// Whether ranks are on the machines where the plan assumed them.

#include <span>
#include <string>

namespace mgplan::runtime {

/// What is wrong with ranks on machines of these names (by rank), where each machine in turn is to hold `ranks_per_node` ranks of
/// consecutive numbers: one sentence that names the first rank that is elsewhere; empty where nothing is.
[[nodiscard]] std::string placement_problem(std::span<const std::string> node_of_rank, int ranks_per_node);

}  // namespace mgplan::runtime
