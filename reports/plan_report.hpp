#pragma once
// The answer of `mgplan plan` for people and programs.

#include <optional>
#include <string>
#include <vector>

#include "plan/workload.hpp"
#include "planner/search_result.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::reports {

/// One ranked layout with its full prediction.
struct PlannedLayout {
    Layout layout;
    simulator::Prediction prediction;
};

/// One layout that does not fit, and what would make it fit.
struct NearestMiss {
    Layout layout;
    std::int64_t peak_bytes = 0;
    std::vector<planner::Remedy> remedies;
    std::int64_t even_peak_bytes = 0;  ///< with even routing; 0 where that makes no difference
};

/// Everything the report prints.
struct PlanReport {
    Workload workload;
    std::vector<std::string> assumed;
    planner::SearchResult search;
    std::vector<PlannedLayout> plans;
    std::vector<NearestMiss> nearest;
};

/// JSON of CLI.md, "Planning".
[[nodiscard]] std::string plan_report_json(const PlanReport& report);

/// Table of at most 100 columns; `explain`: the plan (from 1) whose terms are listed below it.
[[nodiscard]] std::string plan_report_text(const PlanReport& report, std::optional<std::size_t> explain);

[[nodiscard]] std::string plan_report_csv(const PlanReport& report);

/// "llama3-8b on 16 GPUs (dgx-h100), batch of …": one line.
[[nodiscard]] std::string workload_text(const Workload& workload);

/// "assumed: …" wrapped at 98 columns; empty where nothing was assumed.
[[nodiscard]] std::string assumed_text(const std::vector<std::string>& assumed);

/// One layout in full: sizes, time by cause, memory by category. Used by --explain and by simulate.
[[nodiscard]] std::string layout_text(const Layout& layout, const simulator::Prediction& prediction);

/// What costs this layout most beside useful compute: "bubble 12%", "tp 9%", "recomp 20%".
[[nodiscard]] std::string largest_loss(const simulator::TimePrediction& time);

/// The fullest stage and the largest of its parameters, gradients, optimizer state and activations: "s0 activ".
[[nodiscard]] std::string fullest_term(const Layout& layout, const simulator::MemoryPrediction& memory);

}  // namespace mgplan::reports
