#pragma once
// Cache of allocator replays for layouts whose ranks allocate the same: different recompute modules and overlaps often give equal
// allocations.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/layout/layout.hpp"
#include "simulator/memory/allocator_replay.hpp"
#include "simulator/memory/memory_prediction.hpp"
#include "simulator/memory/model_state.hpp"

namespace mgplan::simulator {

/// Inputs of a replay of engine megatron's allocations (megatron_replay.hpp), within one workload and switches that keep the types of held
/// tensors. Any other input of a replay, such as gathers of split weights for a recomputed forward, must be part of `trace`.
struct ReplayKey {
    ParallelSizes sizes;
    std::shared_ptr<const StageSplit> split;
    int vpp = 1, pp_rank = 0;
    std::int64_t group_size = 0, num_microbatches = 0;
    const ModelStates* types = nullptr;  ///< bytes of parameters, gradients and optimizer state: shared by layouts with the same types
    std::int64_t update = 0, limit = 0;
    IterationTrace trace;
};
[[nodiscard]] inline bool operator==(const ReplayKey& a, const ReplayKey& b) {
    const auto numbers = [](const ReplayKey& key) {
        return std::tuple(key.vpp, key.pp_rank, key.group_size, key.num_microbatches, key.types, key.update, key.limit);
    };
    return numbers(a) == numbers(b) && a.sizes == b.sizes && (a.split == b.split || *a.split == *b.split) && a.trace == b.trace;
}

/// Not thread-safe.
class ReplayMemo {
public:
    /// The cached result of `replay(key)`: reserved memory, or nothing if fragmentation exceeds `most_fragmentation`.
    template <class Replay>
    std::optional<ReservedMemory> of(ReplayKey key, double most_fragmentation, const Replay& replay) {
        Known& known = find(std::move(key));
        if (known.memory) return known.memory;
        if (most_fragmentation <= known.exceeded) return std::nullopt;
        known.memory = replay(known.key);
        if (!known.memory) known.exceeded = most_fragmentation;
        return known.memory;
    }

private:
    struct Known {
        ReplayKey key;
        std::optional<ReservedMemory> memory;
        double exceeded = -std::numeric_limits<double>::infinity();  ///< the largest fragmentation that it is known to exceed
    };
    /// Each trace takes several hundred kilobytes.
    static constexpr std::size_t kMostKnown = 128;

    Known& find(ReplayKey key) {
        for (Known& known : known_) {
            if (known.key == key) return known;
        }
        if (known_.size() == kMostKnown) known_.clear();
        return known_.emplace_back(Known{std::move(key), {}});
    }

    std::vector<Known> known_;
};

}  // namespace mgplan::simulator
