#pragma once
// Memory of CUDA graphs on the ranks of any layout of one workload; results that layouts share are computed once.

#include <bit>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/compute/layer_costs.hpp"
#include "simulator/memory/activation_memory.hpp"
#include "simulator/memory/cuda_graphs.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/piece/memo_key.hpp"
#include "simulator/piece/shard_key.hpp"
#include "simulator/piece/stage_census.hpp"

namespace mgplan::simulator {

/// Not thread-safe. All constructor arguments must outlive it. Layouts must be valid.
class RankGraphs {
public:
    RankGraphs(const Workload& workload, const Calibration& calibration, SharedSchedules& schedules, ActivationMemory& activations)
        : workload_(workload), calibration_(calibration), schedules_(schedules), activations_(activations) {}

    /// A rank's chunks, and the live microbatches of each at its peak.
    struct Held {
        std::span<const ChunkCensus> chunks;
        std::span<const std::int64_t> alive;
    };
    /// All zero without scopes. `costs`: of the layout.
    [[nodiscard]] GraphTerms of(const Layout& layout, int pp_rank, const LayerCosts& costs, const Held& held);
    /// Terms without `nodes` and `objects`, the only ones that depend on layer costs.
    [[nodiscard]] GraphTerms without_objects(const Layout& layout, int pp_rank, const Held& held);

private:
    /// All that graphed layers depend on, in addition to the workload.
    struct Key {
        ShardKey shard;
        EnumSet<CudaGraphScope> scopes;
        bool operator==(const Key&) const = default;
        [[nodiscard]] std::size_t hash() const { return hash_of(shard, std::bit_cast<std::uint32_t>(scopes)); }
    };
    [[nodiscard]] GraphTerms terms(const Layout& layout, int pp_rank, const LayerCosts& costs, const Held& held);
    [[nodiscard]] const GraphResidency& residency(const Layout& layout, int pp_rank, GraphPolicy policy);

    const Workload& workload_;
    const Calibration& calibration_;
    SharedSchedules& schedules_;
    ActivationMemory& activations_;
    std::unordered_map<MemoKey<6>, const GraphResidency*, MemoKeyHash> residencies_;  ///< owned by the shared schedules
    std::unordered_map<Key, GraphedLayers, MemoKeyHash> graphed_;
};

}  // namespace mgplan::simulator
