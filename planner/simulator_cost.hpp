#pragma once
// The cost model that a search uses unless it is given another: the simulator's closed forms.

#include "planner/search.hpp"

namespace mgplan::planner {

/// Prices layouts with simulator::CostModel, one for each thread of a search.
[[nodiscard]] CostModelFactory simulator_cost_model();

}  // namespace mgplan::planner
