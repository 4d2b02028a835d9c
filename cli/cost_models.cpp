#include "cli/cost_models.hpp"

#include <memory>

#include "simulator/cost_model.hpp"

namespace mgplan::cli {

planner::CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) {
        auto model = std::make_shared<simulator::CostModel>(workload);
        return planner::LayoutCost{[model](const Layout& layout) { return model->peak_bytes(layout); },
                                   [model](const Layout& layout) { return model->iteration_seconds(layout); }};
    };
}

}  // namespace mgplan::cli
