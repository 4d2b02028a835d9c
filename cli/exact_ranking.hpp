#pragma once
// The best of a search ranked anew by their exact timelines, and whether any other layout could be faster.

#include <cstddef>
#include <cstdint>

#include "planner/search.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {

/// Layouts that the exact timeline ranks anew, at least.
inline constexpr std::size_t kRankedExactly = 200;
/// Layouts that a search keeps because of their lower bounds (planner::SearchOptions::keep_contenders).
inline constexpr std::size_t kContenders = 2000;
/// Passes that the timeline may replay for more layouts than those that are shown; and as many again for those that might be faster.
inline constexpr std::int64_t kPassesRankedExactly = 1'000'000;

/// Ranks the best of the search anew by the exact timeline. The first `most` are replayed; of the others, in their order, as many as
/// kPassesRankedExactly allow, so that the answer does not depend on the machine. Then, for the objective of throughput, those of
/// the contenders whose lower bound is below the fastest, the smallest bound first, as long as passes allow. Layouts that were not
/// replayed keep their order behind the others. Sets SearchResult::replayed and fastest_is_proven.
void rank_exactly(planner::SearchResult& found, simulator::CostModel& model, planner::Objective objective, std::size_t most);

}  // namespace mgplan::cli
