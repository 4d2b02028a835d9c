#pragma once
// Plans a job for several worlds, and for each what changes to the job would bring: what `plan --world LIST` and `--tokens` show.

#include <functional>
#include <vector>

#include "cli/command.hpp"
#include "cli/workload_options.hpp"
#include "planner/search.hpp"
#include "reports/scaling_report.hpp"

namespace mgplan::cli {

/// Where a study gets its answers from.
struct ScalingSources {
    /// A job of these options; throws ConfigError where there is none.
    std::function<ResolvedWorkload(const WorkloadOptions&)> resolve;
    /// All layouts of it, the best of them ranked by their exact time; with SearchResult::pareto where `pareto`. Throws ConfigError
    /// where no layout is legal.
    std::function<planner::SearchResult(const Workload&, bool pareto)> search;
};

struct ScalingStudy {
    reports::ScalingReport report;
    /// The first world with a plan, else the first of which no layout fits.
    ResolvedWorkload resolved;
    planner::SearchResult search;
};

/// Studies each of `worlds` (one at least): a world that no layout suits, or that all are too large for, is reported as not possible
/// next to the others. Where no layout is legal on any of them, throws ConfigError with the problems of each.
/// Says on console.err what is being searched.
[[nodiscard]] ScalingStudy study_scaling(const WorkloadOptions& options, const std::vector<std::int64_t>& worlds,
                                         const planner::TrainingGoal& goal, const ScalingSources& sources, Console& console);

}  // namespace mgplan::cli
