#include "planner/branch_memory.hpp"

#include <algorithm>

#include "plan/layout/layout_switches.hpp"

namespace mgplan::planner {

bool BranchMemory::may_fit(const Layout& layout) {
    if (!cost_.least_bytes_of_tail) return true;
    const Tail tail{layout.cuda_graphs,      layout.recompute_modules,    layout.recompute,
                    layout.recompute_method, layout.recompute_num_layers, layout.switches ? layout.switches->dispatcher : std::nullopt};
    auto known = tails_.begin() + static_cast<std::ptrdiff_t>(std::min(next_, tails_.size()));
    if (known == tails_.end() || !(known->tail == tail))
        known = std::find_if(tails_.begin(), tails_.end(), [&](const Known& one) { return one.tail == tail; });
    if (known == tails_.end()) {
        tails_.push_back({tail, cost_.least_bytes_of_tail(layout, space_) <= limit_});
        known = tails_.end() - 1;
    }
    next_ = static_cast<std::size_t>(known - tails_.begin()) + 1;
    return known->may_fit;
}

}  // namespace mgplan::planner
