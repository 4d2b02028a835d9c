#pragma once
// Bytes that a framework's allocator holds on one pipeline stage.

#include <algorithm>
#include <cstdint>

#include "simulator/memory/cuda_graphs.hpp"
#include "simulator/memory/model_state.hpp"

namespace mgplan::simulator {

/// Bytes of the framework on one stage at its peak.
struct FrameworkBytes {
    ModelStateBytes state;
    std::int64_t passes = 0;  ///< bytes that forwards and backwards take, workspaces of the trace included
    std::int64_t lasting_workspace = 0;
    GraphTerms graph;
    std::int64_t outside = 0;  ///< bytes outside the framework's allocator, without graphs

    /// Change of the passes' bytes by graphs; afterwards at least `resident` bytes are left.
    [[nodiscard]] std::int64_t moved() const { return std::max(graph.activations, graph.resident - passes); }
    /// True if the optimizer's update is the peak: it needs copies of narrower gradients, but no activations.
    [[nodiscard]] bool peaks_in_update() const { return !graph.pool_is_private && state.update > passes + moved() - graph.resident; }
    [[nodiscard]] std::int64_t total() const {
        const std::int64_t eager = passes + moved();
        const std::int64_t rest = graph.pool_is_private ? eager + state.update : peaks_in_update() ? state.update + graph.resident : eager;
        return state.parameters + state.gradients + state.optimizer + lasting_workspace + graph.static_inputs + graph.boundary_bytes + rest;
    }
    /// Fragmentation, as a share of total(), above which the stage takes more than `limit` bytes.
    [[nodiscard]] double fragmentation_within(std::int64_t limit) const {
        constexpr std::int64_t kRounding = 1;  // the step to which a stage's fragmentation is rounded
        const auto left = static_cast<double>(limit - graph.objects - outside + kRounding);
        return left / static_cast<double>(std::max<std::int64_t>(total(), 1)) - 1;
    }
};

}  // namespace mgplan::simulator
