#pragma once
// What the planner's tests share: workloads of presets, and an enumeration of layouts that knows nothing of the planner's.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "planner/search.hpp"

namespace mgplan::planner::testing {

/// A preset on `world` GPUs of a cluster (also with changes, as --cluster takes them). Batch 0: 8 sequences a GPU.
/// Sequence 0: the preset's own, or min(model's maximum, 4096).
[[nodiscard]] Workload workload_of(const std::string& model, std::int64_t world, const std::string& cluster = "dgx-h100",
                                   std::int64_t global_batch = 0, std::int64_t sequence = 0);

/// Every layout that the rules accept, found by nested loops over all integers whose products the world holds, with the
/// rules as the only filter: no divisors, no counting. Fields without meaning (sequence parallelism without tp, the kind of
/// context parallelism without cp, expert sizes of dense models) stand at their neutral value, as make_layout() leaves
/// them.
void visit_naively(const Workload& workload, const std::function<void(const Layout&)>& visit);

/// All fields of a layout as text, the split included: equal exactly when the layouts are.
[[nodiscard]] std::string fingerprint(const Layout& layout);

/// All layouts that the search would price.
[[nodiscard]] std::vector<Layout> candidates_of(const Workload& workload, const SearchSpace& space, CandidateCounts& counts);

}  // namespace mgplan::planner::testing
