#pragma once
// Ranks the layouts of a workload: searches all of them, replays the best event by event, and says which are worth showing.

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"
#include "planner/search.hpp"
#include "planner/simulator_cost.hpp"

namespace mgplan::planner {

struct RankingOptions {
    std::size_t plans = 10;   ///< at most
    bool predictions = true;  ///< false: leaves Ranking::plans empty, where the order of SearchResult::best is enough
    /// Ranks that are kept and certain at least, however many plans are asked for.
    std::size_t ranks = 0;
    /// Shows the fastest layout of each family (plan_families.hpp) alone, with the ranks of the others.
    bool one_per_family = true;
    /// Plans leave so many bytes of Workload::memory_limit free, unless nothing does: then SearchResult::headroom_missed, and they fit into
    /// the limit. It narrows the search alone: predictions keep the workload's limit.
    std::int64_t headroom_bytes = 0;
    Objective objective = Objective::throughput;
    /// Layouts that a lower bound keeps from coming into the list are not priced (SearchOptions::bounded). The plans are the same.
    bool bounded = false;
    bool every_time = false;      ///< without `bounded`: also layouts whose time cannot be of interest are asked for it
    bool balance_stages = false;  ///< also tries balanced stages for the best layouts with a pipeline
    /// Schedules with divided backwards that are tried for the best layouts and the nearest misses (split_schedules.hpp).
    std::vector<SplitSchedule> schedules = {};
    bool only_schedules = false;          ///< ranks these alone
    bool pareto = false;                  ///< also collects SearchResult::pareto
    bool families = false;                ///< also collects SearchResult::families, and ranks kRankedFamilies of them at least
    std::optional<Layout> compared = {};  ///< also says where this layout stands: Ranking::compared
    int threads = 0;                      ///< of the search; 0: all cores
    /// Called about once a second from the calling thread with the finished and total parts. What it throws ends the ranking.
    std::function<void(std::size_t done, std::size_t total)> progress;
    /// Called after each `replaying_every` while the best are replayed, with how many of the wanted are certain by then: families with
    /// one_per_family, however many layouts these have, else layouts. What it throws ends the ranking.
    std::function<void(std::size_t done, std::size_t wanted)> replaying;
    std::chrono::milliseconds replaying_every{1000};
    /// What the search prices layouts with. Tests replace it; replays and predictions are the simulator's in any case.
    CostModelFactory cost_model = simulator_cost_model();
};

struct Ranking {
    std::vector<PlannedLayout> plans;     ///< best first; empty where no layout fits
    SearchResult search;                  ///< its best are ranked exactly and fit with their allocators replayed
    BalancingGain balanced;               ///< empty unless asked for
    std::vector<ScheduleGain> schedules;  ///< by RankingOptions::schedules
    ComparedRank compared;                ///< of RankingOptions::compared
};

/// Enumerates every layout of the workload in the space, prices each, ranks the best by their exact timelines (exact_ranking.hpp),
/// tries balanced stages, puts those first that leave more memory free of what is nearly as fast as the fastest (free_memory_first.hpp),
/// and keeps those that fit with their allocators replayed. The same answer on every machine and for any number of threads. Throws
/// ConfigError where no layout is legal, with what stands in the way; where none fits there are no plans, and SearchResult::nearest are the
/// nearest misses (remedies() says what makes them fit).
[[nodiscard]] Ranking rank_layouts(const Workload& workload, const SearchSpace& space = {}, const RankingOptions& options = {});

/// The plans that rank_layouts() makes of a search's best: at most `most`.
[[nodiscard]] std::vector<PlannedLayout> plans_of(const Workload& workload, const SearchResult& search, std::size_t most,
                                                  bool one_per_family);

}  // namespace mgplan::planner
