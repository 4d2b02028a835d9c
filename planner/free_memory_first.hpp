#pragma once
// The plan that leaves more memory free stands first among those that no prediction tells apart by their time.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "planner/replayed_memories.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// A difference in time below this share decides nothing: it is within what predictions of differences can tell (docs/accuracy.md).
inline constexpr double kNearlyAsFast = 0.01;

/// Free bytes that are worth more time. Fewer are within what predictions of memory can tell: 1 GiB is 1.3 % of a card of 80 GB, and their
/// mean error is larger (docs/accuracy.md, "Memory, 16-bit"); the time would be lost all the same.
inline constexpr std::int64_t kWorthMoreTime = std::int64_t{1} << 30;

/// Brings those of the Pareto set that the search finds nearly as fast as its fastest to the front of the best, so that a ranking of the
/// first of them looks at what needs least memory, however many layouts are faster. Returns how many there are.
std::size_t bring_frugal_ones_forward(SearchResult& found);

/// Layouts whose order by memory is that of their replayed allocators. Behind them it is that of the search's estimate, so that an order
/// does not depend on how many plans are asked for. Replays of all that are nearly as fast take up to half as long again as a search.
inline constexpr std::size_t kSortedAsReplayed = 12;

/// Orders the first `count` of a list, fastest first, by free memory, to kWorthMoreTime: each place has, of the layouts that are left, the
/// fastest of those that leave less than that less free than the one that leaves most, or the fastest of all where that leaves less than
/// that less free than this. So none stands before the fastest, nor a slower one before its neighbour, that does not leave that much more.
void order_by_free_memory(std::vector<RankedLayout>& best, std::size_t count);

/// Deciding bytes of a layout's fullest GPU.
using BytesOf = std::function<std::int64_t(const Layout&)>;

/// Orders the first `count` of a list, fastest first, as order_by_free_memory() does: by the search's estimate, and of these the first
/// kSortedAsReplayed and the fastest once more with their allocators `replayed`. The fastest keeps its place by the estimate where none of
/// the others turns out to belong behind it.
void order_nearly_as_fast(std::vector<RankedLayout>& best, std::size_t count, const BytesOf& replayed);

/// For a ranking by time. Drops what is faster than the first of those that were replayed and fit with their allocators replayed, sets
/// SearchResult::fastest_seconds, and puts what is nearly as fast in the order of its memory. Returns how many it dropped.
std::size_t put_free_memory_first(SearchResult& found, ReplayedMemories& memories);

/// For a ranking by memory. Sorts the first kSortedAsReplayed of a list that is sorted as the search estimates it.
void sort_as_replayed(std::vector<RankedLayout>& best, ReplayedMemories& memories);

}  // namespace mgplan::planner
