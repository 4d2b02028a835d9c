#pragma once
// Schedules with split backwards for the best layouts of a search: time by event simulation, memory op by op.

#include <span>

#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"
#include "planner/search.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Number of layouts tried under each schedule.
inline constexpr std::size_t kMostDivided = 40;

/// Tries the schedules of `kinds` for the best layouts with a pipeline, and for those that exceed the memory limit by the fewest bytes,
/// because some schedules need less: the same sizes and recompute with the schedule's chunks and the automatic split. Those that fit are
/// added to the ranked layouts by their exact time, and to families and Pareto set. `alone`: they replace all of these, and the nearest
/// misses are those of these schedules. Adds to `feasible` the number that fits. The ranking is then not proven, because other layouts were
/// not tried. Must be called after rank_exactly().
[[nodiscard]] std::vector<ScheduleGain> add_split_schedules(SearchResult& found, simulator::CostModel& model, const Workload& workload,
                                                            std::span<const SplitSchedule> kinds, Objective objective, bool alone);

}  // namespace mgplan::planner
