#pragma once
// What a ranking answers: plain values, which reports read too.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/layout/stage_split.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::planner {

/// One ranked layout with its full prediction.
struct PlannedLayout {
    Layout layout;
    simulator::Prediction prediction;
    std::size_t rank = 1;                  ///< in the search's order, from 1; --explain and --pick name it
    std::vector<std::size_t> others = {};  ///< ranks of its family behind it (plan_families.hpp), as far as the ranking goes
};

/// Families that a ranking ranks where it collects their points, whatever the number of plans.
inline constexpr std::size_t kRankedFamilies = 6;

/// A point in the picture of a search (search_points.hpp).
struct SearchPoint {
    PlannedLayout plan;        ///< rank 0: the ranking does not reach it
    std::int64_t members = 0;  ///< fitting layouts of its family; 0: a member of the Pareto set beside its family's point
    bool replayed = false;     ///< its time is of the timeline event by event, its memory of a replayed allocator
};

/// Where a layout stands among those that fit (RankingOptions::compared).
struct ComparedRank {
    std::size_t rank = 0;  ///< from 1; 0: it does not fit
    bool exact = false;    ///< both it and those before it were ranked by their timelines; else by the search's estimate
};

/// What balancing the stages of the best layouts gained (RankingOptions::balance_stages).
struct BalancingGain {
    std::size_t tried = 0, faster = 0;                        ///< layouts
    std::map<const StageSplit*, double> seconds_before = {};  ///< of an iteration with the even split, by the balanced one
};

/// What a schedule with divided backwards brought (RankingOptions::schedules).
struct ScheduleGain {
    SplitSchedule kind{};
    std::size_t tried = 0, fit = 0;        ///< layouts
    std::optional<double> seconds;         ///< of an iteration of the fastest that fits
    std::optional<double> seconds_before;  ///< of the fastest of Megatron-LM's schedules
    std::string why_not;                   ///< where none fits, the first reason
};

}  // namespace mgplan::planner
