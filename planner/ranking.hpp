#pragma once
// Ranks the layouts of a workload: searches all of them, simulates the best event by event, and selects those to show.

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
    std::size_t plans = 10;   ///< at most, and the recommended one
    bool predictions = true;  ///< false: leaves Ranking::plans empty; the order is in SearchResult::best
    /// Minimum number of ranks that are kept and certain, whatever the number of plans.
    std::size_t ranks = 0;
    /// Looks only at the fastest layout of each family (plan_families.hpp), with the ranks of the others, and shows those of them that
    /// have a reason (plan_reasons.hpp).
    bool one_per_family = true;
    /// Plans leave this part of Workload::memory_limit free. If none does, SearchResult::headroom_missed is set and plans only fit the
    /// limit. Applies only to the search: predictions keep the workload's limit.
    std::int64_t headroom_bytes = 0;
    Objective objective = Objective::throughput;
    /// Does not evaluate layouts that a lower bound keeps out of the list (SearchOptions::bounded). The plans are the same.
    bool bounded = false;
    bool balance_stages = false;  ///< also tries balanced stages for the best layouts with a pipeline
    /// Schedules with split backwards to try for the best layouts and the nearest misses (split_schedules.hpp).
    std::vector<SplitSchedule> schedules = {};
    bool only_schedules = false;          ///< ranks only these
    bool pareto = false;                  ///< also collects SearchResult::pareto
    bool families = false;                ///< also collects SearchResult::families, and ranks at least kRankedFamilies of them
    std::optional<Layout> compared = {};  ///< also ranks this layout: Ranking::compared
    /// Sizes of a published recipe. By time, the fastest plan with them is marked (PlanReason::like_nvidia_recipe); an answer of one plan
    /// per family holds it even where the ranking does not.
    std::optional<RecipeSizes> recipe = {};
    bool keeps_few = false;     ///< keeps fewer layouts for replays: a shorter search, for one plan
    bool host_offload = false;  ///< also looks for Ranking::offload
    int threads = 0;            ///< threads of the search; 0: allowed_processors()
    /// Called about once a second from the calling thread with the finished and total parts. An exception from it ends the ranking.
    std::function<void(std::size_t done, std::size_t total)> progress;
    /// Called after each `replaying_every` during replays of the best, with the number of wanted families (one_per_family) or layouts that
    /// are certain so far. An exception from it ends the ranking.
    std::function<void(std::size_t done, std::size_t wanted)> replaying;
    std::chrono::milliseconds replaying_every{1000};
    /// Cost model of the search. Tests replace it; event simulation, replays and predictions always use the simulator.
    CostModelFactory cost_model = simulator_cost_model();
};

struct Ranking {
    std::vector<PlannedLayout> plans;     ///< best first; empty if no layout fits
    SearchResult search;                  ///< its best are ranked exactly and fit with their allocators replayed
    BalancingGain balanced;               ///< empty unless requested
    std::vector<ScheduleGain> schedules;  ///< one per RankingOptions::schedules
    ComparedRank compared;                ///< rank of RankingOptions::compared
    /// With the optimizer in host memory, which a search takes only where nothing fits otherwise: the fastest plan with the sizes of the
    /// first of `plans` or half its tp, pp and ep, if it needs at least kLeastGain less time. Never by memory, for engine mgplan, or where
    /// with_optimizer_on_host() has nothing.
    std::optional<JobChange> offload;
};

/// Enumerates and evaluates every layout of the workload in the space, ranks the best by their exact timelines (exact_ranking.hpp), tries
/// balanced stages, and keeps layouts that fit with their allocators replayed, fastest first. Gives the same result on every machine and
/// for any number of threads. Throws ConfigError with the reasons if no layout is legal; if none fits there are no plans, and
/// SearchResult::nearest are the nearest misses (remedies() returns changes that make them fit).
[[nodiscard]] Ranking rank_layouts(const Workload& workload, const SearchSpace& space = {}, const RankingOptions& options = {});

/// The first layout of a ranking.
struct FirstLayout {
    std::optional<PlannedLayout> plan;  ///< without reasons; nothing if no layout leaves the headroom
    std::int64_t dropped = 0;           ///< layouts that leave it by the search's estimate, but not with their allocator replayed
};

/// Returns the first layout of rank_layouts(), without a search for nearest misses. Throws ConfigError if no layout is legal.
[[nodiscard]] FirstLayout first_layout(const Workload& workload, const SearchSpace& space, const RankingOptions& options);

/// The plans that rank_layouts() makes of a search's best: at most `most`.
[[nodiscard]] std::vector<PlannedLayout> plans_of(const Workload& workload, const SearchResult& search, std::size_t most,
                                                  bool one_per_family);

}  // namespace mgplan::planner
