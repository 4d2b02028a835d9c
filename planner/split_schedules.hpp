#pragma once
// Schedules with divided backwards for the best layouts of a search: played event by event, their memory op by op.

#include <span>

#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"
#include "planner/search.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Layouts that are tried under each schedule.
inline constexpr std::size_t kMostDivided = 40;

/// Tries the schedules of `kinds` for the best layouts with a pipeline, and for those that miss the memory limit by the fewest
/// bytes, since some schedules hold less: the same sizes and recompute with the schedule's chunks and the automatic split. Those
/// that fit come among the ranked ones by their exact time, and among families and Pareto set; `alone`: in place of all of these, and where
/// none fits the nearest misses are those of these schedules, none where none was tried. Adds to `feasible` what fits. A ranking is
/// not proven then: other layouts were not tried. Call it behind rank_exactly().
[[nodiscard]] std::vector<ScheduleGain> add_split_schedules(SearchResult& found, simulator::CostModel& model, const Workload& workload,
                                                            std::span<const SplitSchedule> kinds, Objective objective, bool alone);

}  // namespace mgplan::planner
