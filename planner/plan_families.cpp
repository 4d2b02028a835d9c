#include "planner/plan_families.hpp"

#include <algorithm>
#include <optional>

#include "plan/layout/layout_switches.hpp"

namespace mgplan::planner {

bool same_family(const Layout& a, const Layout& b) {
    const auto dispatcher = [](const Layout& layout) {
        return layout.switches ? layout.switches->dispatcher : std::optional<TokenDispatcher>{};
    };
    return a.sizes == b.sizes && dispatcher(a) == dispatcher(b) && a.recompute == b.recompute &&
           a.recompute_modules == b.recompute_modules && a.recompute_method == b.recompute_method &&
           a.recompute_num_layers == b.recompute_num_layers;
}

std::vector<PlanFamily> plan_families(std::span<const RankedLayout> best, std::size_t most) {
    std::vector<PlanFamily> found;
    for (std::size_t i = 0; i < best.size(); ++i) {
        const auto family = std::find_if(found.begin(), found.end(),
                                         [&](const PlanFamily& each) { return same_family(best[each.fastest].layout, best[i].layout); });
        if (family != found.end())
            family->others.push_back(i);
        else if (found.size() < most)
            found.push_back({i, {}});
    }
    return found;
}

}  // namespace mgplan::planner
