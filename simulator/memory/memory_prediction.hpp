#pragma once
// Predicted memory of a layout: the values that `plan` and `simulate` print (CLI.md "predicted").

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::simulator {

/// Bytes by category. CLI.md, "Borders", defines the categories.
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

/// Peak bytes of a rank of a MoE model at quantiles of the tokens that its experts receive, including context. memory/routing_load.hpp
/// defines the quantiles.
struct RoutedPeaks {
    std::string skew;  ///< as text, such as "uniform"
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

/// Parts of `context` (simulator/memory/device_overhead.hpp).
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

/// Memory of PyTorch's allocator after some iterations (simulator/memory/allocator_replay.hpp).
struct ReservedMemory {
    std::int64_t first = 0;      ///< bytes reserved after the first iteration
    std::int64_t steady = 0;     ///< bytes reserved after the last iteration
    std::int64_t allocated = 0;  ///< the largest sum of blocks in use, each rounded up to 512 bytes
    [[nodiscard]] std::int64_t fragmentation() const { return steady - allocated; }
};

/// The op that runs at a rank's peak, and the tensor that it allocates then.
struct PeakInstant {
    int op = 0;               ///< +k a forward, -k a backward of chunk k-1; 0: the optimizer's update
    std::string_view tensor;  ///< points to a string literal
};

/// One rank's memory, with tokens spread evenly over experts.
struct RankMemory {
    MemoryBreakdown breakdown;         ///< at the peak
    MemoryBreakdown high_water;        ///< each category's own maximum over the iteration
    std::int64_t framework_bytes = 0;  ///< peak that the framework's tensor allocator would report
    std::int64_t reserved_bytes = 0;   ///< bytes that this allocator would reserve on the device
    std::int64_t host_bytes = 0;       ///< peak of data offloaded to the host (--offload); not part of the peak
    /// Set for models with experts. In MemoryPrediction::worst each quantile is that of the fullest rank at that quantile.
    std::optional<RoutedPeaks> routing;
    /// Unknown if CUDA graphs rearrange the passes, and not set if only sums are requested.
    std::optional<PeakInstant> peak_at;
    ContextTerms context_terms;  ///< parts of breakdown.context; empty if only sums are requested
    [[nodiscard]] std::int64_t peak_bytes() const { return breakdown.total(); }
    /// Shifts the peak at each quantile of the skew: applies a correction of the even peak to the quantiles too.
    void shift_routing(std::int64_t bytes) {
        if (!routing) return;
        for (std::int64_t* peak : {&routing->p50, &routing->p99, &routing->worst}) *peak += bytes;
    }
    /// Bytes that must fit: the peak, for MoE models at p99 of the routing skew.
    [[nodiscard]] std::int64_t deciding_bytes() const { return routing ? routing->p99 : peak_bytes(); }
};

/// Memory of the whole layout: its fullest rank.
struct MemoryPrediction {
    RankMemory worst;
    std::int64_t worst_rank = 0;
    int worst_stage = 0;
    std::int64_t limit_bytes = 0;
    std::int64_t node_host_bytes = 0;   ///< data that the ranks of a node offload to its host memory, on the fullest node
    std::int64_t host_limit_bytes = 0;  ///< host memory of a node; 0: unknown
    [[nodiscard]] std::int64_t deciding_bytes() const { return worst.deciding_bytes(); }
    [[nodiscard]] std::int64_t host_missing() const {
        return host_limit_bytes == 0 ? 0 : std::max<std::int64_t>(0, node_host_bytes - host_limit_bytes);
    }
    [[nodiscard]] bool host_fits() const { return host_missing() == 0; }
    [[nodiscard]] bool fits() const { return deciding_bytes() <= limit_bytes && host_fits(); }
};

}  // namespace mgplan::simulator
