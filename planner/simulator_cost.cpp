#include "planner/simulator_cost.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "plan/layout/layout_switches.hpp"
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
    need.host_missing = peaks.host_missing;
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

/// `workload`: the model's.
LayoutCost cost_by(const std::shared_ptr<simulator::CostModel>& model, const Workload& workload) {
    auto choices = std::make_shared<std::optional<simulator::BoundedChoices>>();
    const auto choices_in = [choices](const SearchSpace& space) -> const simulator::BoundedChoices& {
        if (!*choices) *choices = choices_of(space);
        return **choices;
    };
    LayoutCost cost;
    cost.memory = [model](const Layout& layout, std::int64_t most) { return need_of(model->peaks(layout, most)); };
    cost.iteration_seconds = [model](const Layout& layout) {
        const simulator::TimePrediction time = model->estimate_time(layout);
        return TimeEstimate(time.iteration_seconds, time.at_least_seconds);
    };
    cost.least_seconds = [model, choices_in](const Layout& layout, const SearchSpace& space, double enough) {
        return model->least_seconds(layout, choices_in(space), enough);
    };
    cost.least_seconds_unsplit = [model, choices_in](const Layout& layout, const SearchSpace& space, double enough) {
        return model->least_seconds_unsplit(layout, choices_in(space), enough);
    };
    cost.least_bytes = [model, choices_in](const Layout& layout, const SearchSpace& space) {
        return model->least_bytes(layout, choices_in(space));
    };
    cost.least_bytes_of_tail = [model, choices_in](const Layout& layout, const SearchSpace& space, bool everywhere, std::int64_t enough) {
        return model->least_bytes_of_tail(layout, choices_in(space), everywhere, enough);
    };
    cost.least_bytes_switched = [model](const Layout& layout) { return model->least_bytes_switched(layout); };
    cost.least_seconds_switched = [model, choices_in](const Layout& layout, const SearchSpace& space, double enough) {
        return model->least_seconds(layout, choices_in(space).graphs, enough);
    };
    cost.least_seconds_repeated = [model, choices_in](const Layout& layout, const SearchSpace& space) {
        return model->least_seconds_repeated(layout, choices_in(space));
    };
    cost.replayed_bytes = [model](const Layout& layout, std::int64_t limit) -> std::optional<std::int64_t> {
        const auto memory = model->replayed_memory(layout, limit);
        if (!memory || memory->deciding_bytes() > limit) return std::nullopt;
        return memory->deciding_bytes();
    };
    cost.another = [model, &workload] { return cost_by(std::make_shared<simulator::CostModel>(workload, *model), workload); };
    cost.resharded = [model](const Workload& other) { return cost_by(std::make_shared<simulator::CostModel>(other, *model), other); };
    return cost;
}

}  // namespace

CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) { return cost_by(std::make_shared<simulator::CostModel>(workload), workload); };
}

}  // namespace mgplan::planner
