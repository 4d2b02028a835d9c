#pragma once
// The picture of a bounded search: families and Pareto set of layouts too slow for its list.

#include <functional>

#include "plan/workload.hpp"
#include "planner/candidates.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {

/// Adds to the families and the Pareto set of a bounded search those of all layouts with the first choice of each axis: layouts far from
/// the best are not evaluated with every choice. Of these, only layouts are evaluated that may be the fastest of their family or in the
/// Pareto set, by lower bounds of seconds and bytes; the result is that of evaluating all, except that FamilyPoint::members counts the
/// evaluated ones alone. `workload`: with the memory that plans may use. `options`: pareto, families, threads and progress. The result
/// does not depend on threads.
void add_slower_families(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model,
                         const SearchOptions& options, SearchResult& found);

}  // namespace mgplan::planner
