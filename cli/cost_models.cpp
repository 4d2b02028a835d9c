#include "cli/cost_models.hpp"

#include <memory>

#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

planner::MemoryNeed need_of(const simulator::RankMemory& fullest) {
    using planner::FillingTerm;
    const simulator::MemoryBreakdown& b = fullest.breakdown;
    planner::MemoryNeed need(fullest.peak_bytes(), FillingTerm::parameters);
    std::int64_t most = b.parameters;
    const auto look = [&](FillingTerm term, std::int64_t bytes) {
        if (bytes <= most) return;
        most = bytes;
        need.largest = term;
    };
    look(FillingTerm::gradients, b.gradients);
    look(FillingTerm::optimizer, b.optimizer);
    look(FillingTerm::activations, b.activations);
    look(FillingTerm::other, need.bytes - b.parameters - b.gradients - b.optimizer - b.activations);
    return need;
}

}  // namespace

planner::CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) {
        auto model = std::make_shared<simulator::CostModel>(workload);
        return planner::LayoutCost{[model](const Layout& layout) { return need_of(model->memory(layout).worst); },
                                   [model](const Layout& layout) { return model->iteration_seconds(layout); }};
    };
}

}  // namespace mgplan::cli
