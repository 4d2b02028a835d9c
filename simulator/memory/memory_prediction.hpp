#pragma once
// What a layout will hold: the memory that `plan` and `simulate` print (CLI.md "predicted").

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::simulator {

/// Bytes by category. What counts where: CLI.md, "Borders".
struct MemoryBreakdown {
    std::int64_t parameters = 0;
    std::int64_t gradients = 0;
    std::int64_t optimizer = 0;
    std::int64_t activations = 0;
    std::int64_t graph_static_inputs = 0;
    std::int64_t graph_boundary = 0;
    std::int64_t graph_objects = 0;
    std::int64_t communication = 0;
    std::int64_t workspace = 0;
    std::int64_t context = 0;
    std::int64_t fragmentation = 0;

    [[nodiscard]] std::int64_t total() const {
        return parameters + gradients + optimizer + activations + graph_static_inputs + graph_boundary + graph_objects + communication +
               workspace + context + fragmentation;
    }
    bool operator==(const MemoryBreakdown&) const = default;
};

/// Peak bytes of a rank with mixtures of experts at quantiles of the rows that they receive, context and all. What the
/// quantiles are over: memory/routing_load.hpp.
struct RoutedPeaks {
    std::string skew;  ///< in words, as in "uniform"
    std::int64_t p50 = 0;
    std::int64_t p99 = 0;
    std::int64_t worst = 0;
    bool operator==(const RoutedPeaks&) const = default;
};

/// NCCL's memory for one kind of group.
struct CommunicatorTerm {
    std::string_view group;
    std::int64_t bytes = 0;
};

/// What `context` is made of (simulator/memory/device_overhead.hpp).
struct ContextTerms {
    std::int64_t driver = 0;   ///< the context itself
    std::int64_t modules = 0;  ///< kernels loaded into it
    std::vector<CommunicatorTerm> nccl;
    [[nodiscard]] std::int64_t total() const {
        std::int64_t sum = driver + modules;
        for (const CommunicatorTerm& term : nccl) sum += term.bytes;
        return sum;
    }
};

/// What PyTorch's allocator holds after some iterations (simulator/memory/allocator_replay.hpp).
struct ReservedMemory {
    std::int64_t first = 0;      ///< bytes reserved behind the first iteration
    std::int64_t steady = 0;     ///< behind the last one
    std::int64_t allocated = 0;  ///< the largest sum of blocks in use, each rounded up to 512 bytes
    [[nodiscard]] std::int64_t fragmentation() const { return steady - allocated; }
};

/// What runs when a rank is fullest, and the tensor that it takes then.
struct PeakInstant {
    int op = 0;               ///< +k a forward, -k a backward of chunk k-1; 0: the optimizer's update
    std::string_view tensor;  ///< a literal
};

/// One rank's memory, where tokens are spread evenly over experts.
struct RankMemory {
    MemoryBreakdown breakdown;         ///< at the peak instant
    MemoryBreakdown high_water;        ///< each category's own maximum over the iteration
    std::int64_t framework_bytes = 0;  ///< what a framework's tensor allocator would report as its peak
    std::int64_t reserved_bytes = 0;   ///< what that allocator would have taken from the device
    std::int64_t host_bytes = 0;       ///< most that waits in the host's memory at one time (--offload); no part of the peak
    /// Set for models with experts. MemoryPrediction::worst has at each quantile that of the fullest rank there.
    std::optional<RoutedPeaks> routing;
    /// Not known where CUDA graphs rearrange the passes, and where sums alone are asked for.
    std::optional<PeakInstant> peak_at;
    ContextTerms context_terms;  ///< parts of breakdown.context; left empty where only sums are asked for
    [[nodiscard]] std::int64_t peak_bytes() const { return breakdown.total(); }
    /// Moves the peak at each quantile of the skew by as many bytes: what the peak without it was off by, they were, too.
    void shift_routing(std::int64_t bytes) {
        if (!routing) return;
        for (std::int64_t* peak : {&routing->p50, &routing->p99, &routing->worst}) *peak += bytes;
    }
    /// What has to fit: the peak, of a mixture of experts at p99 of its routing skew.
    [[nodiscard]] std::int64_t deciding_bytes() const { return routing ? routing->p99 : peak_bytes(); }
};

/// Memory of the whole layout: its fullest rank.
struct MemoryPrediction {
    RankMemory worst;
    std::int64_t worst_rank = 0;
    int worst_stage = 0;
    std::int64_t limit_bytes = 0;
    std::int64_t node_host_bytes = 0;   ///< what the ranks of a node leave in its memory, of the node where that is most
    std::int64_t host_limit_bytes = 0;  ///< a node's memory; 0: not known
    [[nodiscard]] std::int64_t deciding_bytes() const { return worst.deciding_bytes(); }
    [[nodiscard]] std::int64_t host_missing() const {
        return host_limit_bytes == 0 ? 0 : std::max<std::int64_t>(0, node_host_bytes - host_limit_bytes);
    }
    [[nodiscard]] bool host_fits() const { return host_missing() == 0; }
    [[nodiscard]] bool fits() const { return deciding_bytes() <= limit_bytes && host_fits(); }
};

}  // namespace mgplan::simulator
