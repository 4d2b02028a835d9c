#pragma once
// Orders plans with nearly equal predicted times by free memory, most first.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "planner/replayed_memories.hpp"
#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Times that differ by less than this share count as equal: predictions of differences are not more accurate (docs/accuracy.md).
inline constexpr double kNearlyAsFast = 0.01;

/// Difference in free bytes that justifies more time. Smaller differences are within the error of memory predictions: 1 GiB is 1.3 % of a
/// card of 80 GB, and their mean error is larger (docs/accuracy.md, "Memory, 16-bit"); the time would be lost for nothing.
inline constexpr std::int64_t kWorthMoreTime = std::int64_t{1} << 30;

/// Moves members of the Pareto set that the search finds nearly as fast as its fastest to the front of the best list, so that exact ranking
/// of the first ones includes the smallest layouts, however many are faster. Returns their number.
std::size_t bring_frugal_ones_forward(SearchResult& found);

/// Number of layouts ordered by replayed memory. Later ones are ordered by the search's estimate, so that an order does not depend on the
/// number of requested plans. Replays of all nearly equal layouts take up to half the time of a search.
inline constexpr std::size_t kSortedAsReplayed = 12;

/// Orders the first `count` of a list, sorted by time, by free memory in steps of kWorthMoreTime: each position takes, of the remaining
/// layouts, the fastest that leaves at most that much less free than the one that leaves most; it takes the fastest of all if the gain over
/// it is smaller. So a slower layout comes before a faster one only if it leaves at least kWorthMoreTime more free.
void order_by_free_memory(std::vector<RankedLayout>& best, std::size_t count);

/// Deciding bytes of a layout's fullest GPU.
using BytesOf = std::function<std::int64_t(const Layout&)>;

/// Orders the first `count` of a list, sorted by time, as order_by_free_memory() does: by the search's estimate, then the first
/// kSortedAsReplayed and the fastest again by `replayed` memory. The fastest keeps its position by the estimate unless another layout
/// belongs after it.
void order_nearly_as_fast(std::vector<RankedLayout>& best, std::size_t count, const BytesOf& replayed);

/// For a ranking by time. Drops leading exactly timed layouts that do not fit with their allocators replayed, sets
/// SearchResult::fastest_seconds to the first that fits, and orders nearly equal times by memory. Returns how many it dropped.
std::size_t put_free_memory_first(SearchResult& found, ReplayedMemories& memories);

/// For a ranking by memory. Sorts the first kSortedAsReplayed of a list in the order of the search's estimate by replayed memory.
void sort_as_replayed(std::vector<RankedLayout>& best, ReplayedMemories& memories);

}  // namespace mgplan::planner
