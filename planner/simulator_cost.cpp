#include "planner/simulator_cost.hpp"

#include <cstdint>
#include <memory>

#include "simulator/cost_model.hpp"

namespace mgplan::planner {
namespace {

MemoryNeed need_of(const simulator::LayoutPeaks& peaks) {
    MemoryNeed need;
    need.bytes = peaks.deciding;
    need.even = peaks.even;
    need.largest = FillingTerm::parameters;
    std::int64_t most = peaks.parameters;
    const auto look = [&](FillingTerm term, std::int64_t bytes) {
        if (bytes <= most) return;
        most = bytes;
        need.largest = term;
    };
    look(FillingTerm::gradients, peaks.gradients);
    look(FillingTerm::optimizer, peaks.optimizer);
    look(FillingTerm::activations, peaks.activations);
    look(FillingTerm::other, peaks.even - peaks.parameters - peaks.gradients - peaks.optimizer - peaks.activations);
    return need;
}

}  // namespace

CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) {
        auto model = std::make_shared<simulator::CostModel>(workload);
        return LayoutCost{[model](const Layout& layout, std::int64_t most) { return need_of(model->peaks(layout, most)); },
                          [model](const Layout& layout) {
                              const simulator::TimePrediction time = model->time(layout);
                              return TimeEstimate(time.iteration_seconds, time.at_least_seconds);
                          }};
    };
}

}  // namespace mgplan::planner
