#pragma once
// Results of a ranking: plain values, which reports read too.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/layout/stage_split.hpp"
#include "planner/plan_reasons.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::planner {

/// One ranked layout with its full prediction.
struct PlannedLayout {
    Layout layout;
    simulator::Prediction prediction;
    std::size_t rank =
        1;  ///< in the search's order, from 1; --explain and --pick use it; 0: beyond the list, of a table's row like a recipe
    std::vector<std::size_t> others = {};  ///< later ranks of its family (plan_families.hpp), within the ranking
    std::vector<PlanReason> why = {};      ///< among the plans of the answer
    bool recommended = false;              ///< one of the answer's plans is (plan_reasons.hpp)
};

/// Number of families that a ranking by time looks at for reasons and the recommended plan, whatever the number of plans.
inline constexpr std::size_t kConsideredFamilies = 5;
/// Number of families that a ranking ranks if it collects their points, whatever the number of plans.
inline constexpr std::size_t kRankedFamilies = 6;

/// A change of the job that makes a plan faster or smaller and that no search makes: of the numbers that it computes
/// (numeric_changes.hpp), or with the optimizer in host memory
/// (RankingOptions::host_offload).
struct JobChange {
    std::string option;      ///< "--precision mxfp8"
    double seconds = 0;      ///< of an iteration with it
    std::int64_t bytes = 0;  ///< on the fullest rank with it
};

/// A gain in time or memory below this share is not worth such a change.
inline constexpr double kLeastGain = 0.03;

/// A point in the picture of a search (search_points.hpp).
struct SearchPoint {
    PlannedLayout plan;        ///< rank 0: beyond the end of the ranking
    std::int64_t members = 0;  ///< number of fitting layouts of its family; 0: a further member of the Pareto set
    bool replayed = false;     ///< its time is from event simulation, its memory from an allocator replay
};

/// Rank of a given layout among those that fit (RankingOptions::compared).
struct ComparedRank {
    std::size_t rank = 0;  ///< from 1; 0: it does not fit
    bool exact = false;    ///< true: ranked by event simulation, like all before it; false: by the search's estimate
    bool least = false;    ///< true: more layouts may be before it, because bounds cut some
};

/// Gain from balanced stages among the best layouts (RankingOptions::balance_stages).
struct BalancingGain {
    std::size_t tried = 0, faster = 0;                        ///< number of layouts
    std::map<const StageSplit*, double> seconds_before = {};  ///< iteration with the even split, by the balanced one
};

/// Result of a schedule with split backwards (RankingOptions::schedules).
struct ScheduleGain {
    SplitSchedule kind{};
    std::size_t tried = 0, fit = 0;        ///< number of layouts
    std::optional<double> seconds;         ///< iteration of the fastest that fits
    std::optional<double> seconds_before;  ///< iteration of the fastest with Megatron-LM's schedules
    std::string why_not;                   ///< if none fits, the first reason
};

}  // namespace mgplan::planner
