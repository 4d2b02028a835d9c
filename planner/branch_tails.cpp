#include "planner/branch_tails.hpp"

#include <algorithm>
#include <cmath>

#include "plan/layout/layout_switches.hpp"

namespace mgplan::planner {

bool BranchTails::may_come_in(const Layout& layout, std::int64_t limit, double enough, double& cut_at_least) {
    if (!cost_.least_bytes_of_tail) return true;
    Tail tail{.cuda_graphs = layout.cuda_graphs,
              .modules = layout.recompute_modules,
              .recompute = layout.recompute,
              .method = layout.recompute_method,
              .layers = layout.recompute_num_layers,
              .dispatcher = layout.switches ? layout.switches->dispatcher : std::nullopt};
    if (everywhere_ && layout.switches) {
        tail.bf16_gradients = layout.switches->bf16_gradients;
        tail.bf16_moments = layout.switches->bf16_moments;
    }
    auto known = tails_.begin() + static_cast<std::ptrdiff_t>(std::min(next_, tails_.size()));
    if (known == tails_.end() || !(known->tail == tail))
        known = std::find_if(tails_.begin(), tails_.end(), [&](const Known& one) { return one.tail == tail; });
    if (known == tails_.end()) {
        const auto fits = [&] { return cost_.least_bytes_of_tail(layout, space_, everywhere_, limit) <= limit; };
        tails_.push_back({tail, !takes_longer(layout, enough, cut_at_least) && fits()});
        known = tails_.end() - 1;
    }
    next_ = static_cast<std::size_t>(known - tails_.begin()) + 1;
    return known->may_come_in;
}

bool BranchTails::takes_longer(const Layout& layout, double enough, double& cut_at_least) const {
    // Selective recompute repeats little, and its time would need an evaluation.
    if (layout.recompute != Recompute::full || !cost_.least_seconds_repeated || !std::isfinite(enough)) return false;
    const double at_least = cost_.least_seconds_repeated(layout, space_);
    if (at_least <= enough) return false;
    cut_at_least = std::min(cut_at_least, at_least);
    return true;
}

}  // namespace mgplan::planner
