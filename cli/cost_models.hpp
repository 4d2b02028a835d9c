#pragma once
// Where the planner meets the simulator: the search takes its cost model as a function, and this is the function.

#include "planner/search.hpp"

namespace mgplan::cli {

/// Prices layouts with simulator::CostModel.
[[nodiscard]] planner::CostModelFactory simulator_cost_model();

}  // namespace mgplan::cli
