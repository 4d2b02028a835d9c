#pragma once
// A closer look at the best of a search: their exact timelines, whether any other layout could be faster, and their allocators.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "planner/replayed_memories.hpp"
#include "planner/search.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Layouts that the exact timeline ranks anew at most, where no later rank is asked for.
inline constexpr std::size_t kRankedExactly = 200;
/// Layouts that it ranks anew however many passes they have.
inline constexpr std::size_t kRankedExactlyAlways = 24;
/// Layouts that a search keeps because of their lower bounds (SearchOptions::keep_contenders).
inline constexpr std::size_t kContenders = 2000;
/// Passes that the timeline may replay for more layouts than these.
inline constexpr std::int64_t kPassesRankedExactly = 4'000'000;
/// Passes that it may replay for layouts that might be faster.
inline constexpr std::int64_t kPassesProved = 1'000'000;

/// How many layouts that were ranked exactly keep their ranks whatever else is replayed: by a closer look those behind them may come
/// before the last.
[[nodiscard]] constexpr std::size_t certain_ranks(std::size_t ranked_exactly) {
    return ranked_exactly - ranked_exactly / 4;
}

/// Ranks the best of the search again, by the exact timeline: the first kRankedExactly of them, or fewer, kRankedExactlyAlways at least,
/// where they have more than kPassesRankedExactly. Where `most` are more than are certain of these, twice as many until they are not. So a
/// rank is one layout's on every machine and, but for those far down a list, however many ranks are asked for. Then, for the objective of
/// throughput, those of the contenders whose lower bound is below the fastest, the smallest bound first, as long as passes allow. Layouts
/// that were not replayed keep their order behind the others. Sets SearchResult::replayed and fastest_is_proven.
void rank_exactly(SearchResult& found, simulator::CostModel& model, Objective objective, std::size_t most);

/// Whether the layouts kept so far are enough.
using Enough = std::function<bool(std::span<const RankedLayout> kept)>;

/// Whether a layout that the search found to fit does so with its allocator replayed as well: a search is too fast for replays and assumes
/// fragmentation.
[[nodiscard]] bool fits_when_replayed(const SearchResult& found, const RankedLayout& ranked, ReplayedMemories& memories);
/// Counts one that does not in SearchResult::too_large_replayed rather than in `feasible`.
void drop_too_large(SearchResult& found, RankedLayout ranked, ReplayedMemories& memories);

/// Keeps of the fitting layouts, in their order and until there are enough, those that are fits_when_replayed() in
/// SearchResult::limit_bytes, with the bytes of the replay: no plan that is shown exceeds the limit by the figures shown with it. The
/// others are dropped; which ones are looked at depends on the order alone. Returns how many of the first `exact` it kept.
std::size_t keep_fitting_when_replayed(SearchResult& found, ReplayedMemories& memories, const Enough& enough, std::size_t exact = 0);

}  // namespace mgplan::planner
