#pragma once
// Output of `mgplan plan` as text and JSON.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

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

/// One layout that does not fit, and changes that make it fit.
struct NearestMiss {
    Layout layout;
    simulator::MemoryPrediction memory;
    std::vector<planner::Remedy> remedies;
};

/// Layouts that do not fit and have the same largest term on their fullest rank, or the same other reason, with the one nearest to the
/// limit.
struct TooLargeLayouts {
    std::optional<planner::FillingTerm> term;  ///< nothing: they would fit with even routing, or see `replayed`
    std::int64_t count = 0;
    Layout nearest;
    simulator::MemoryPrediction memory;  ///< memory of the nearest
    bool replayed = false;               ///< they fit by the search's assumed fragmentation, but not when replayed
    [[nodiscard]] std::string_view rule() const {
        if (term == planner::FillingTerm::host) return planner::kFitsInHost;
        return replayed ? planner::kFitsReplayed : term ? planner::kFits : planner::kFitsAtP99;
    }
};

/// Amount of detail of a table: a first look of at most 24 lines of 80 columns for five plans, or everything.
enum class Detail { first_look, wide };

/// Everything that the report prints.
struct PlanReport {
    Workload workload;
    std::vector<std::string> assumed;
    BatchSource batch_source = BatchSource::given;
    planner::SearchResult search;
    std::vector<PlannedLayout> plans;           ///< by rank; a table may omit some
    std::vector<planner::JobChange> changes;    ///< of the numbers that the first plan computes
    std::optional<planner::JobChange> offload;  ///< with the optimizer in host memory, where that is faster than the first plan
    std::optional<PlannedLayout> explained;     ///< the plan whose terms a table lists
    std::optional<PlanComparison> comparison;   ///< of the explained plan with the next
    std::optional<ComparedLayout> compared;     ///< the layout to compare with the first plan
    std::size_t orders = 1;                     ///< number of searched orders of the axes
    std::optional<ScalingReport> scaling;       ///< set if several worlds, or days and cost, are requested
    std::vector<NearestMiss> nearest;           ///< set if nothing fits
    std::vector<TooLargeLayouts> too_large;     ///< sorted by number of layouts, descending
    std::optional<planner::BalancingGain> balanced;
    std::vector<planner::ScheduleGain> schedules;  ///< schedules with split backwards that were tried
    bool schedules_alone = false;                  ///< only these schedules were requested
    std::optional<formats::FlagAccount> flags;     ///< set if the model comes from a Megatron-LM command
    Detail detail = Detail::first_look;            ///< detail of the table
    bool all_assumed = false;                      ///< also in a first look
    std::string recipe;                            ///< NVIDIA's recipe for the job; "": none is known
    std::optional<std::string> saved_as;           ///< the file of the best plan, or of a picked one
    bool graphs_searched = false;                  ///< CUDA graphs of layers are the search's choice

    /// Bytes of each GPU that the search left free.
    [[nodiscard]] std::int64_t headroom_bytes() const { return workload.memory_limit - search.limit_bytes; }
    /// Seconds of the plan with its even split, if its stages were balanced.
    [[nodiscard]] std::optional<double> seconds_before(const PlannedLayout& plan) const;
    /// Number of layouts that do not fit, by the rule that they break; rules that none breaks are left out.
    [[nodiscard]] std::vector<std::pair<std::string_view, std::int64_t>> too_large_rules() const;
};

/// Reasons in words, in the order of the list.
[[nodiscard]] std::vector<std::string_view> words_of(const std::vector<planner::PlanReason>& reasons);

/// An entry of "plans" in that JSON.
[[nodiscard]] nlohmann::ordered_json plan_to_json(const Workload& workload, const PlannedLayout& plan);

/// JSON of CLI.md, "Planning".
[[nodiscard]] std::string plan_report_json(const PlanReport& report);

/// The table, and below it the terms of the explained plan. A first look: the job, its first assumptions, the plans, the error of
/// predictions of this kind, and the next command; columns that are 1 in all rows are left out.
[[nodiscard]] std::string plan_report_text(const PlanReport& report);

/// The plans as a Markdown table for a pull request, under the job and above its assumptions; in detail `wide` also the time of a step and
/// the memory of the fullest GPU by term. If nothing fits, the nearest misses.
[[nodiscard]] std::string plan_report_markdown(const PlanReport& report);

/// A line for each schedule with split backwards that was tried: number of layouts tried and fitting, its gain, or the reason why none
/// fits.
[[nodiscard]] std::vector<std::string> schedule_lines(const PlanReport& report);

[[nodiscard]] std::string plan_report_csv(const PlanReport& report);

}  // namespace mgplan::reports
