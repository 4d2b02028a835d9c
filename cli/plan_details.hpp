#pragma once
// What `plan` answers beside its plans.

#include <cstddef>
#include <string>

#include "plan/layout/layout.hpp"
#include "reports/plan_report.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

/// Holds the plan at `index` of the best against the one behind it. `model` prices the report's workload.
void explain(reports::PlanReport& report, simulator::CostModel& model, std::size_t index);

/// Puts a layout beside the first plan, of which there must be one; `given` is what --compare named.
void compare(reports::PlanReport& report, simulator::CostModel& model, const Layout& layout, const std::string& given,
             const planner::ComparedRank& rank);

/// What does not fit: by what fills it, and where nothing fits the nearest misses with what would make them fit. Judged by the limit of
/// the search, headroom and all.
void add_too_large(reports::PlanReport& report);

/// The search as a page.
[[nodiscard]] std::string search_page_of(const reports::PlanReport& report, simulator::CostModel& model);

/// Writes the page of --html, which Options::output_file() has tried. Throws RunError when it cannot be written.
void write_search_page(const std::string& path, const std::string& page);

}  // namespace mgplan::cli
