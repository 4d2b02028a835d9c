#pragma once
// A search that prices what may come into the best alone.

#include <cstddef>
#include <vector>

#include "plan/workload.hpp"
#include "planner/candidates.hpp"
#include "planner/search.hpp"
#include "planner/search_share.hpp"

namespace mgplan::planner {

/// Those parts first that are likely to hold the fastest layouts: little tensor and context parallelism.
[[nodiscard]] std::vector<std::size_t> promising_first(const std::vector<Prefix>& parts);

/// Those parts first that divide the model among most ranks: where nothing fits, the nearest misses.
[[nodiscard]] std::vector<std::size_t> most_divided_first(const std::vector<Prefix>& parts);

/// Prices what may come into the best of all `parts` of a space (SearchOptions::bounded), or into its nearest misses (nearest_alone), into
/// `all`. One pricer for each thread.
void search_bounded(const Workload& workload, const SearchSpace& space, const std::vector<Prefix>& parts,
                    const std::vector<LayoutCost>& pricers, const SearchOptions& options, SearchShare& all);

}  // namespace mgplan::planner
