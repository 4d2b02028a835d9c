#pragma once
// Groups the best layouts into families, of which a reader needs to see only one: layouts that spread the model equally and differ only in
// how a rank runs its share.

#include <cstddef>
#include <span>
#include <vector>

#include "planner/search_result.hpp"

namespace mgplan::planner {

/// True for equal tp, cp, ep, etp, pp (and so dp), order of axes, recompute and dispatcher. Members differ in micro-batch, vpp, sequence
/// parallelism, cp_comm_type, CUDA graphs, overlaps, dtypes of the optimizer or the split of stages.
[[nodiscard]] bool same_family(const Layout& a, const Layout& b);

/// Indices in the list, from 0.
struct PlanFamily {
    std::size_t fastest = 0;          ///< its first member in the list
    std::vector<std::size_t> others;  ///< the later members
    bool operator==(const PlanFamily&) const = default;
};

/// The first `most` rows (family_rows.hpp) of the list in the order of their first members, each with its members in the whole list.
[[nodiscard]] std::vector<PlanFamily> plan_families(std::span<const RankedLayout> best, std::size_t most);

}  // namespace mgplan::planner
