#pragma once
// The default cost model of a search: the simulator's closed forms.

#include "planner/search.hpp"

namespace mgplan::planner {

/// Evaluates layouts with simulator::CostModel, one for each thread of a search.
[[nodiscard]] CostModelFactory simulator_cost_model();

}  // namespace mgplan::planner
