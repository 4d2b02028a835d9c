#pragma once
// Plans a job for several worlds, each with the effect of changes to the job: the answer of `plan --world LIST` and `--tokens`.

#include <cstdint>
#include <functional>
#include <vector>

#include "cli/command.hpp"
#include "cli/workload_options.hpp"
#include "planner/search.hpp"
#include "reports/scaling_report.hpp"

namespace mgplan::cli {

/// A job of a study: a world, whose plans are shown, or a change to it, of which only the fastest plan is.
enum class StudiedJob : std::uint8_t { world, change };

/// Functions that resolve and search a study's jobs.
struct ScalingSources {
    /// Returns the job of these options; throws ConfigError if there is none.
    std::function<ResolvedWorkload(const WorkloadOptions&)> resolve;
    /// Returns a search of all layouts, the best of them ranked by their exact time; of a world with SearchResult::pareto. Throws
    /// ConfigError if no layout is legal.
    std::function<planner::SearchResult(const Workload&, StudiedJob)> search;
};

struct ScalingStudy {
    reports::ScalingReport report;
    /// The first world with a plan, else the first of which no layout fits.
    ResolvedWorkload resolved;
    planner::SearchResult search;
};

/// Studies each of `worlds` (one at least). A world that no layout suits, or that all are too large for, is reported as not possible
/// next to the others. Throws ConfigError with the problems of each if no layout is legal on any of them.
/// Prints the progress to console.err.
[[nodiscard]] ScalingStudy study_scaling(const WorkloadOptions& options, const std::vector<std::int64_t>& worlds,
                                         const planner::TrainingGoal& goal, const ScalingSources& sources, Console& console);

}  // namespace mgplan::cli
