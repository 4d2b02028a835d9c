#pragma once
// Where the planner meets the simulator: the search takes its cost model as a function, and this is the function.

#include <cstddef>

#include "planner/search.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

/// Prices layouts with simulator::CostModel.
[[nodiscard]] planner::CostModelFactory simulator_cost_model();

/// Keeps of the fitting layouts, in their order, the first `most` that fit with their allocators replayed as well (a search is
/// too fast for replays and assumes fragmentation): no plan that is shown exceeds the limit by the figures shown with it. Those
/// that do not fit are moved from `feasible` to `too_large_replayed`; which ones are looked at depends on the order alone.
void keep_fitting_when_replayed(planner::SearchResult& found, simulator::CostModel& model, std::size_t most);

}  // namespace mgplan::cli
