#pragma once
// Which of the best layouts a reader need not see beside each other: those of one family, which share what decides how a model is
// spread and differ in how a rank works on its share.

#include <cstddef>
#include <span>
#include <vector>

#include "planner/search_result.hpp"

namespace mgplan::planner {

/// Layouts of equal tp, cp, ep, etp, pp (and so dp), order of axes, recompute and dispatcher. Members differ in micro-batch, vpp,
/// sequence parallelism, cp_comm_type, CUDA graphs, overlaps, types of the optimizer or the split of stages.
[[nodiscard]] bool same_family(const Layout& a, const Layout& b);

/// Places in the list, from 0.
struct PlanFamily {
    std::size_t fastest = 0;          ///< its first member in the list
    std::vector<std::size_t> others;  ///< those behind it
    bool operator==(const PlanFamily&) const = default;
};

/// The first `most` rows (family_rows.hpp) of the list in the order of their first members, each with its members in the whole list.
[[nodiscard]] std::vector<PlanFamily> plan_families(std::span<const RankedLayout> best, std::size_t most);

}  // namespace mgplan::planner
