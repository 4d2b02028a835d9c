#pragma once
// The picture of a search: a point for every family of layouts that fits, with what it takes in time and memory, term by term.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Points of a picture: of more families the fastest are shown.
inline constexpr std::size_t kMostPoints = 10'000;

/// The points of a search that collected SearchResult::families and pareto: the families, at most `most`, best first, and behind them
/// the members of the Pareto set that are no family's point (`members` 0). The point of a family is its first member in
/// SearchResult::best, else its fastest. Among either, those in SearchResult::best keep its order; behind them the others stand by time.
/// Times are of the timeline event by event as long as passes and points allow, then of the closed form that searches use; memory is
/// replayed for the same points. Where a replay exceeds the limit although the search found that the layout fits, `plan` says so.
[[nodiscard]] std::vector<SearchPoint> search_points(const Workload& workload, const SearchResult& found, std::size_t most = kMostPoints);

}  // namespace mgplan::planner
