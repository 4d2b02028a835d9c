#include "planner/simulator_cost.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "plan/layout_switches.hpp"
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

simulator::BoundedChoices choices_of(const SearchSpace& space) {
    simulator::BoundedChoices choices;
    choices.switches = space.switches;
    const auto narrow = [](const auto& switches) {
        return switches ? (switches->bf16_gradients ? 1 : 0) + (switches->bf16_moments ? 1 : 0) : 0;
    };
    choices.narrowest = *std::max_element(space.switches.begin(), space.switches.end(),
                                          [&](const auto& a, const auto& b) { return narrow(a) < narrow(b); });
    choices.graphs = !space.cuda_graphs.empty() || !space.more_cuda_graphs.empty();
    return choices;
}

}  // namespace

CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) {
        auto model = std::make_shared<simulator::CostModel>(workload);
        return LayoutCost{
            [model](const Layout& layout, std::int64_t most) { return need_of(model->peaks(layout, most)); },
            [model](const Layout& layout) {
                const simulator::TimePrediction time = model->time(layout);
                return TimeEstimate(time.iteration_seconds, time.at_least_seconds);
            },
            [model, choices = simulator::BoundedChoices{}, known = false](const Layout& layout, const SearchSpace& space) mutable {
                if (!known) choices = choices_of(space);
                known = true;
                return model->least_seconds(layout, choices);
            }};
    };
}

}  // namespace mgplan::planner
