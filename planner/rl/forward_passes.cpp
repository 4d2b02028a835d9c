#include "planner/rl/forward_passes.hpp"

#include <algorithm>
#include <cstddef>

#include "simulator/cost_model.hpp"

namespace mgplan::planner {

double forward_seconds(const Workload& workload, const Layout& layout, double sequences) {
    // The passes of a microbatch do not depend on their number, so that the shortest legal iteration is simulated.
    Workload one = workload;
    Layout few = layout;
    few.num_microbatches = layout.vpp > 1 ? layout.group_size : 1;
    one.batch.global_batch = few.num_microbatches * few.micro_batch * few.dp();
    simulator::CostModel costs(one);
    const simulator::StepTimeline step = costs.timeline(few, false).step;
    const auto ranks = static_cast<std::size_t>(layout.sizes.pp), chunks = step.chunks.size() / ranks;
    double slowest = 0, all = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        double seconds = 0;
        for (std::size_t chunk = 0; chunk < chunks; ++chunk) seconds += step.chunks[rank * chunks + chunk].time.forward;
        slowest = std::max(slowest, seconds);
        all += seconds + (rank > 0 ? step.transfer : 0);
    }
    const double microbatches = sequences / static_cast<double>(layout.dp() * layout.micro_batch);
    return std::max(0.0, microbatches - 1) * slowest + std::min(1.0, microbatches) * all;
}

}  // namespace mgplan::planner
