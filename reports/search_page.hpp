#pragma once
// `plan --html`: the report of a search as one page that loads nothing from elsewhere.

#include <cstddef>
#include <string>
#include <vector>

#include "planner/planned_layout.hpp"
#include "reports/plan_report.hpp"

namespace mgplan::reports {

/// Families that the page holds against the winner, at most, with it.
inline constexpr std::size_t kComparedFamilies = planner::kRankedFamilies;
/// A page grows no larger: of the whole simulations those stay away that would not fit.
inline constexpr std::size_t kMostPageBytes = 2'000'000;

struct SearchPage {
    std::vector<planner::SearchPoint> points;  ///< of planner::search_points()
    /// Whole pages of `simulate --html` of the first points, in their order; each opens in a frame of its own.
    std::vector<std::string> simulations;
};

/// Time against memory of every family with the Pareto line and the limit; a table of them to sort and filter; for the point or row that is
/// chosen its time and memory term by term beside the winner's; why the winner wins; whole simulations of the first; what was rejected and
/// by which rule. Where nothing fits: the nearest misses in place of all but the last. What needs no script is there without it.
/// reports/web/search.js sorts, filters and draws 10,000 points within 100 ms: it makes only the rows that a reader scrolled to.
[[nodiscard]] std::string search_page(const PlanReport& report, const SearchPage& page);

}  // namespace mgplan::reports
