#pragma once
// A search that evaluates only layouts that may enter the best list.

#include <cstddef>
#include <vector>

#include "plan/workload.hpp"
#include "planner/candidates.hpp"
#include "planner/search.hpp"
#include "planner/search_share.hpp"

namespace mgplan::planner {

/// Order of the parts that starts with those likely to hold the fastest layouts: small tensor and context parallelism.
[[nodiscard]] std::vector<std::size_t> promising_first(const std::vector<Prefix>& parts);

/// Order of the parts that starts with those that divide the model over most ranks: used to find the nearest misses if nothing fits.
[[nodiscard]] std::vector<std::size_t> most_divided_first(const std::vector<Prefix>& parts);

/// Searches `parts` of a space and adds the result to `all`. Evaluates only layouts that may enter the best list (SearchOptions::bounded),
/// or the nearest misses (nearest_alone). `pricers`: one for each thread. `compared`: SearchOptions::compared with its figures, or null.
void search_bounded(const Workload& workload, const SearchSpace& space, const std::vector<Prefix>& parts,
                    const std::vector<LayoutCost>& pricers, const SearchOptions& options, const RankedLayout* compared, SearchShare& all);

}  // namespace mgplan::planner
