#pragma once
// Exact evaluation of the best layouts of a search: their event simulation, a proof that no other layout is faster, and allocator replays.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "planner/replayed_memories.hpp"
#include "planner/search.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Maximum number of layouts ranked by the exact timeline, unless later ranks are requested.
inline constexpr std::size_t kRankedExactly = 200;
/// Number of layouts ranked by it whatever their number of passes.
inline constexpr std::size_t kRankedExactlyAlways = 24;
/// Number of layouts that a search keeps for their lower bounds (SearchOptions::keep_contenders).
inline constexpr std::size_t kContenders = 2000;
/// Limit on the simulated passes in total; beyond it only the first kRankedExactlyAlways layouts are ranked.
inline constexpr std::int64_t kPassesRankedExactly = 4'000'000;
/// Limit on the simulated passes of layouts that might be faster.
inline constexpr std::int64_t kPassesProved = 1'000'000;

/// Number of exactly ranked layouts that keep their ranks whatever else is simulated: layouts after the list could only move before the
/// last ones.
[[nodiscard]] constexpr std::size_t certain_ranks(std::size_t ranked_exactly) {
    return ranked_exactly - ranked_exactly / 4;
}

/// Ranks the best layouts of the search by the exact timeline: the first kRankedExactly, or, if they have more than kPassesRankedExactly
/// passes, fewer, but at least kRankedExactlyAlways. If fewer than `most` ranks are certain, doubles the number until they are. Ranks are
/// therefore the same on every machine and, except far down a list, for any number of requested ranks. Then, for the objective of
/// throughput, simulates the contenders whose lower bound is below the fastest, the smallest bound first, as long as passes allow. Other
/// layouts keep their order after these. Sets SearchResult::replayed and fastest_is_proven.
void rank_exactly(SearchResult& found, simulator::CostModel& model, Objective objective, std::size_t most);

/// Returns true if the layouts kept so far are enough.
using Enough = std::function<bool(std::span<const RankedLayout> kept)>;

/// True if a layout that fits by the search's assumed fragmentation also fits with its allocator replayed; a search is too fast for
/// replays.
[[nodiscard]] bool fits_when_replayed(const SearchResult& found, const RankedLayout& ranked, ReplayedMemories& memories);
/// Moves a layout that does not fit from the count `feasible` to SearchResult::too_large_replayed.
void drop_too_large(SearchResult& found, RankedLayout ranked, ReplayedMemories& memories);

/// Keeps the fitting layouts that are also fits_when_replayed() in SearchResult::limit_bytes, in their order until there are enough, with
/// the bytes of the replay, and drops the others: no displayed plan exceeds the limit by its displayed figures. The set of replayed layouts
/// depends only on the order. Returns the former places of those it kept, in ascending order.
std::vector<std::size_t> keep_fitting_when_replayed(SearchResult& found, ReplayedMemories& memories, const Enough& enough);

}  // namespace mgplan::planner
