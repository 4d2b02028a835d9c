#pragma once
// The search of one job: of a world of `plan`, of a cluster of `side-by-side`, of a number of GPUs of `least`.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/plan_options.hpp"
#include "cli/progress_line.hpp"
#include "cli/workload_options.hpp"
#include "plan/text/errors.hpp"
#include "planner/ranking.hpp"
#include "reports/plan_report.hpp"

namespace mgplan::cli {

/// Reads the words of the options that restrict the search, once for all searches of a command; problems are added.
void read_search_options(const WorkloadOptions& job, PlanOptions& values, Problems& problems);

/// Returns the first message that says something by itself, on one line.
[[nodiscard]] std::string first_reason(const ConfigError& error);

/// A job, its search space and its ranking, settled in this order. Keeps references to its arguments.
class PlanSearch {
public:
    PlanSearch(const Options& options, const WorkloadOptions& job, PlanOptions& values, Console& console);

    /// Returns the job of other options in this search's space. Throws ConfigError with all problems.
    [[nodiscard]] ResolvedWorkload resolve(const WorkloadOptions& job) const;

    /// Resolves the search's own job. Throws ConfigError with all problems.
    void settle_job();
    /// Completes the search space, and prints warnings and options without effect to `notes.err`. Throws ConfigError for contradictions.
    void settle_space(Console& notes);
    /// Sets what is ranked. `table`: few plans, one of each family, as a table shows them.
    void settle_ranking(bool table);
    /// Searches, and describes the job. Throws ConfigError if no layout is legal.
    [[nodiscard]] reports::PlanReport search();

    /// True if a layout leaves the headroom (planner::fitting_layout).
    [[nodiscard]] bool fits();
    /// A fast layout, found sooner than by search() (planner::fast_layout).
    [[nodiscard]] std::optional<planner::PlannedLayout> fast_layout();

    /// Sets the report's fields about the job.
    void describe(reports::PlanReport& report) const;
    /// Erases the line of progress.
    void clear_progress() { progress_.clear(); }

    [[nodiscard]] const ResolvedWorkload& resolved() const { return resolved_; }
    /// Replaces the job by another of the same options, of which a study shows the plans.
    void replace_job(ResolvedWorkload resolved) { resolved_ = std::move(resolved); }
    [[nodiscard]] planner::RankingOptions& ranking() { return ranking_; }
    /// Bytes of each GPU that plans of the workload leave free.
    [[nodiscard]] std::int64_t headroom(const Workload& workload) const;
    /// Rank of RankingOptions::compared, after the search.
    [[nodiscard]] const planner::ComparedRank& compared_rank() const { return compared_rank_; }

private:
    [[nodiscard]] std::optional<std::string> headroom_text() const;

    const Options& options_;
    const WorkloadOptions& job_;
    PlanOptions& values_;
    Console& console_;
    ProgressLine progress_{console_};
    ResolvedWorkload resolved_;
    planner::RankingOptions ranking_;
    std::string recipe_;  ///< name of NVIDIA's recipe whose sizes are in ranking_
    planner::ComparedRank compared_rank_;
};

}  // namespace mgplan::cli
