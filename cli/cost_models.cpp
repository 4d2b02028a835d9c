#include "cli/cost_models.hpp"

#include <memory>

#include "simulator/cost_model.hpp"

namespace mgplan::cli {

planner::CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) {
        auto model = std::make_shared<simulator::CostModel>(workload);
        planner::LayoutCost cost{[model](const Layout& layout) { return model->deciding_bytes(layout); },
                                 [model](const Layout& layout) { return model->iteration_seconds(layout); }};
        if (workload.model.moe) cost.even_peak_bytes = [model](const Layout& layout) { return model->peak_bytes(layout); };
        return cost;
    };
}

}  // namespace mgplan::cli
