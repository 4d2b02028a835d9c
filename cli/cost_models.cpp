#include "cli/cost_models.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace mgplan::cli {
namespace {

planner::MemoryNeed need_of(const simulator::LayoutPeaks& peaks) {
    using planner::FillingTerm;
    planner::MemoryNeed need;
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

planner::CostModelFactory simulator_cost_model() {
    return [](const Workload& workload) {
        auto model = std::make_shared<simulator::CostModel>(workload);
        return planner::LayoutCost{[model](const Layout& layout, std::int64_t most) { return need_of(model->peaks(layout, most)); },
                                   [model](const Layout& layout) {
                                       const simulator::TimePrediction time = model->time(layout);
                                       return planner::TimeEstimate(time.iteration_seconds, time.at_least_seconds);
                                   }};
    };
}

void keep_fitting_when_replayed(planner::SearchResult& found, simulator::CostModel& model, std::size_t most) {
    std::vector<planner::RankedLayout> kept;
    for (planner::RankedLayout& ranked : found.best) {
        if (kept.size() == most) break;
        const bool replays = ranked.layout.engine == Engine::megatron;
        if (replays) {
            const simulator::MemoryPrediction memory = model.replayed_memory(ranked.layout);
            if (!memory.fits()) {
                ranked.peak_bytes = memory.deciding_bytes();
                planner::TooLarge& dropped = found.too_large_replayed;
                ++dropped.count;
                --found.feasible;
                if (!dropped.nearest || ranked.peak_bytes < dropped.nearest->peak_bytes) dropped.nearest = std::move(ranked);
                continue;
            }
        }
        kept.push_back(std::move(ranked));
    }
    found.best = std::move(kept);
}

}  // namespace mgplan::cli
