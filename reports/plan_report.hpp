#pragma once
// The answer of `mgplan plan` for people and programs.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/input/flag_account.hpp"
#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"
#include "planner/search_result.hpp"
#include "reports/plan_difference.hpp"
#include "reports/scaling_report.hpp"
#include "reports/time_terms.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

using planner::PlannedLayout;

/// One layout that does not fit, and what would make it fit.
struct NearestMiss {
    Layout layout;
    simulator::MemoryPrediction memory;
    std::vector<planner::Remedy> remedies;
};

/// Layouts that do not fit and have the same largest term on their fullest rank, or the same other reason, with the nearest of
/// them.
struct TooLargeLayouts {
    std::optional<planner::FillingTerm> term;  ///< nothing: they would fit with even routing, or …
    std::int64_t count = 0;
    Layout nearest;
    simulator::MemoryPrediction memory;  ///< of the nearest
    bool replayed = false;               ///< … if their allocator left no more holes than a search assumes
    [[nodiscard]] std::string_view rule() const {
        if (term == planner::FillingTerm::host) return planner::kFitsInHost;
        return replayed ? planner::kFitsReplayed : term ? planner::kFits : planner::kFitsAtP99;
    }
};

/// How much a table tells: a first look of at most 24 lines of 80 columns for five plans, or all of it.
enum class Detail { first_look, wide };

/// Everything the report prints.
struct PlanReport {
    Workload workload;
    std::vector<std::string> assumed;
    planner::SearchResult search;
    std::vector<PlannedLayout> plans;          ///< by rank; some may be left out of a table
    std::optional<PlannedLayout> explained;    ///< the one whose terms a table lists
    std::optional<PlanComparison> comparison;  ///< of the explained plan with the next
    std::optional<ComparedLayout> compared;    ///< what was asked to be put beside the first plan
    std::size_t orders = 1;                    ///< of the axes that were searched
    std::optional<ScalingReport> scaling;      ///< where several worlds, or days and cost, are asked for
    std::vector<NearestMiss> nearest;          ///< where nothing fits
    std::vector<TooLargeLayouts> too_large;    ///< most layouts first
    std::optional<planner::BalancingGain> balanced;
    std::vector<planner::ScheduleGain> schedules;  ///< with divided backwards, as far as they were tried
    bool schedules_alone = false;                  ///< no others were asked for
    std::optional<formats::FlagAccount> flags;     ///< where the model comes from a Megatron-LM command
    Detail detail = Detail::first_look;            ///< of the table
    bool all_assumed = false;                      ///< in a first look, too
    std::optional<std::string> saved_as;           ///< the file that holds the best plan, or a picked one
    bool switches_searched = false;                ///< with --search or --dispatcher
    bool recipe_searched = false;                  ///< with --search recipe, where a wider one has CUDA graphs to try
    bool tp_overlap_pinned = false;                ///< with --overlap tp or --no-overlap tp: --search leaves it as it is
    bool graphs_searched = false;                  ///< whether layers have CUDA graphs is the search's choice

    /// Bytes of each GPU that the search left free.
    [[nodiscard]] std::int64_t headroom_bytes() const { return workload.memory_limit - search.limit_bytes; }
    /// Seconds of the plan with its even split, where its stages were balanced.
    [[nodiscard]] std::optional<double> seconds_before(const PlannedLayout& plan) const;
    /// Layouts that do not fit, by the rule that they break; rules that none breaks are left out.
    [[nodiscard]] std::vector<std::pair<std::string_view, std::int64_t>> too_large_rules() const;
};

/// JSON of CLI.md, "Planning".
[[nodiscard]] std::string plan_report_json(const PlanReport& report);

/// The table, and below it the terms of the explained plan. A first look: the job, its first assumptions, the plans, how far predictions of
/// this kind were off, and what to type next; its columns that are 1 in all rows are left out.
[[nodiscard]] std::string plan_report_text(const PlanReport& report);

/// The plans as a Markdown table for a pull request, under the job and above its assumptions; in detail `wide` also where the time of a
/// step goes and what fills the fullest GPU. Where nothing fits, the nearest misses.
[[nodiscard]] std::string plan_report_markdown(const PlanReport& report);

/// A line for each schedule with divided backwards that was tried: of how many layouts, how many fit, what it gains, or why none fits.
[[nodiscard]] std::vector<std::string> schedule_lines(const PlanReport& report);

[[nodiscard]] std::string plan_report_csv(const PlanReport& report);

}  // namespace mgplan::reports
