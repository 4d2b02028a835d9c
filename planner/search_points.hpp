#pragma once
// The picture of a search: a point for every family of fitting layouts, with its time and memory, term by term.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/planned_layout.hpp"
#include "planner/search_result.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Maximum number of points in a picture: the fastest families.
inline constexpr std::size_t kMostPoints = 10'000;

/// The points of a search that collected SearchResult::families and pareto: at most `most` families, best first, then the members of the
/// Pareto set that are no family's point (`members` 0). The point of a family is its first member in SearchResult::best, else its fastest.
/// Within both groups those in SearchResult::best come first, in its order; the others follow by time. Times are from event simulation as
/// long as passes and points allow, then from the closed form of the search; memory is replayed for the same points. If a replay exceeds
/// the limit although the search found that the layout fits, `plan` shows it. `model`: of the searched workload; threads but one
/// get models that share its costs. `threads`: their number; 0: allowed_processors().
[[nodiscard]] std::vector<SearchPoint> search_points(simulator::CostModel& model, const SearchResult& found, int threads = 0,
                                                     std::size_t most = kMostPoints);

}  // namespace mgplan::planner
