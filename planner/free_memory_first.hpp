#pragma once
// The plan that leaves more memory free stands first among those that no prediction tells apart by their time.

#include <cstddef>

#include "planner/replayed_memories.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// A difference in time below this share decides nothing: it is within what predictions of differences can tell (docs/accuracy.md).
inline constexpr double kNearlyAsFast = 0.01;

/// Brings those of the Pareto set that the search finds nearly as fast as its fastest to the front of the best, so that a ranking of the
/// first of them looks at what needs least memory, however many layouts are faster. Returns how many there are.
std::size_t bring_frugal_ones_forward(SearchResult& found);

/// Layouts whose order by memory is that of their replayed allocators. Behind them it is that of the search's estimate, so that an order
/// does not depend on how many plans are asked for.
inline constexpr std::size_t kSortedAsReplayed = 12;

/// For a ranking by time. Drops what is faster than the first of those that were replayed and fit with their allocators replayed, sets
/// SearchResult::fastest_seconds, and sorts what is nearly as fast by memory. Returns how many it dropped.
std::size_t put_free_memory_first(SearchResult& found, ReplayedMemories& memories);

/// Sorts the first kSortedAsReplayed of a list that is sorted by memory as the search estimates it, and of at most `count`.
void sort_as_replayed(std::vector<RankedLayout>& best, std::size_t count, ReplayedMemories& memories);

}  // namespace mgplan::planner
