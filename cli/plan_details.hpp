#pragma once
// Other answers of `plan` than its plans.

#include <cstddef>
#include <string>

#include "plan/layout/layout.hpp"
#include "reports/plan_report.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

/// Compares the plan at `index` of the best with the next one. `model` is the cost model of the report's workload.
void explain(reports::PlanReport& report, simulator::CostModel& model, std::size_t index);

/// Compares a layout with the first plan, which must exist; `given` is the argument of --compare.
void compare(reports::PlanReport& report, simulator::CostModel& model, const Layout& layout, const std::string& given,
             const planner::ComparedRank& rank);

/// Adds the layouts that do not fit, by their largest part of memory, and if nothing fits the nearest misses with changes that would make
/// them fit. Judged by the limit of the search, including headroom. `whole`: of the report's workload.
void add_too_large(reports::PlanReport& report, simulator::CostModel& whole);

/// A search in which nothing fits.
struct NearestMiss {
    std::string why_not;  ///< one line
    std::string remedy;   ///< the cheapest change with which the nearest layout would fit; "": none is known
};
/// Adds the nearest misses to the report, and returns the nearest of them.
[[nodiscard]] NearestMiss nearest_miss(reports::PlanReport& report);

/// Returns the search as a page. `threads`: 0: allowed_processors().
[[nodiscard]] std::string search_page_of(const reports::PlanReport& report, simulator::CostModel& model, int threads);

/// Writes the page of --html, which Options::output_file() has tried. Throws RunError when it cannot be written.
void write_search_page(const std::string& path, const std::string& page);

}  // namespace mgplan::cli
