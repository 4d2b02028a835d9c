#include "planner/plan_families.hpp"

#include <optional>

#include "plan/layout/layout_switches.hpp"
#include "planner/family_rows.hpp"

namespace mgplan::planner {

bool same_family(const Layout& a, const Layout& b) {
    const auto dispatcher = [](const Layout& layout) {
        return layout.switches ? layout.switches->dispatcher : std::optional<TokenDispatcher>{};
    };
    const auto sharding = [](const Layout& layout) {
        return layout.switches ? layout.switches->sharding : std::optional<DataShardingChoice>{};
    };
    return a.sizes == b.sizes && sharding(a) == sharding(b) && dispatcher(a) == dispatcher(b) && a.recompute == b.recompute &&
           a.recompute_modules == b.recompute_modules && a.recompute_method == b.recompute_method &&
           a.recompute_num_layers == b.recompute_num_layers;
}

std::vector<PlanFamily> plan_families(std::span<const RankedLayout> best, std::size_t most) {
    std::vector<PlanFamily> found;
    FamilyRows rows;
    for (std::size_t i = 0; i < best.size(); ++i) {
        const std::size_t row = rows.row_of(best[i]);
        if (row < found.size())
            found[row].others.push_back(i);
        else if (found.size() < most)
            found.push_back({i, {}});
    }
    return found;
}

}  // namespace mgplan::planner
