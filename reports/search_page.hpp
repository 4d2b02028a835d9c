#pragma once
// `plan --html`: the report of a search as one page that loads nothing from elsewhere.

#include <cstddef>
#include <string>
#include <vector>

#include "planner/planned_layout.hpp"
#include "reports/plan_report.hpp"

namespace mgplan::reports {

/// Maximum number of families that the page compares, the winner included.
inline constexpr std::size_t kComparedFamilies = planner::kRankedFamilies;
/// Maximum size of a page: whole simulations that would exceed it are left out.
inline constexpr std::size_t kMostPageBytes = 2'000'000;

struct SearchPage {
    std::vector<planner::SearchPoint> points;  ///< points of planner::search_points()
    /// Whole pages of `simulate --html` of the first points, in their order; each opens in a frame of its own.
    std::vector<std::string> simulations;
};

/// Time against memory of every family with the Pareto line and the limit; a table of them to sort and filter; time and memory of the
/// selected point term by term next to the winner's; reasons why the winner wins; whole simulations of the first; rejected candidates by
/// rule. If nothing fits: the nearest misses instead of all but the last. Parts that need no script are visible without it.
[[nodiscard]] std::string search_page(const PlanReport& report, const SearchPage& page);

}  // namespace mgplan::reports
