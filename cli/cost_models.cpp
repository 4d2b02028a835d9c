#include "cli/cost_models.hpp"

#include <memory>

#include "simulator/cost_model.hpp"

namespace mgplan::cli {

planner::CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) {
        auto model = std::make_shared<simulator::CostModel>(workload);
        planner::LayoutCost cost{[model](const Layout& layout) { return model->peaks(layout).deciding; },
                                 [model](const Layout& layout) { return model->iteration_seconds(layout); }};
        if (workload.model.moe) {
            cost.peaks = [model](const Layout& layout, std::int64_t most) {
                const auto peaks = model->peaks(layout, most);
                return planner::Peaks{peaks.deciding, peaks.even};
            };
        }
        return cost;
    };
}

}  // namespace mgplan::cli
