#pragma once
// What PyTorch's caching allocator holds of the device after some training iterations: the recorded takes and returns of a
// rank, played on its rules (caching_allocator.hpp). What it reserves beyond the largest sum of tensors is fragmentation.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/pipeline/send_depth.hpp"
#include "plan/schedule/schedule.hpp"
#include "simulator/memory/caching_allocator.hpp"
#include "simulator/memory/memory_prediction.hpp"

namespace mgplan::simulator {

/// One allocation. Times order takes and returns; they need not be dense.
struct Allocation {
    std::int64_t bytes = 0;
    std::int64_t taken = 0;
    std::int64_t returned = -1;  ///< -1: kept
    bool operator==(const Allocation&) const = default;
};

/// Plays `setup` once and `iteration` so many times (at least once), or until one reserves no more than the one before. What an
/// iteration keeps it takes in the first one alone: optimizer state and workspaces that are made when first used. The second
/// iteration finds other holes than the first; what is reserved at most is told (segments are given back at the limit alone). Allocations
/// without bytes are left out.
[[nodiscard]] ReservedMemory replay_allocator(std::span<const Allocation> setup, std::span<const Allocation> iteration, int iterations,
                                              const CachingAllocatorOptions& options = {});

/// The same, or nothing, told as soon as it is certain, where fragmentation is more than this share of what is allocated at most.
[[nodiscard]] std::optional<ReservedMemory> replay_allocator_within(double most_fragmentation, std::span<const Allocation> setup,
                                                                    std::span<const Allocation> iteration, int iterations,
                                                                    const CachingAllocatorOptions& options = {});

/// A forward (+k) or backward (-k) of chunk k-1 in a trace: what was taken or returned at times [begin, end).
struct TracedPass {
    int op = 0;
    std::int64_t begin = 0, end = 0;
    bool operator==(const TracedPass&) const = default;
};

/// A rank's iteration in which every chunk runs forward and backward once.
struct IterationTrace {
    std::vector<Allocation> tensors;
    std::vector<TracedPass> passes;  ///< in order; what happens between two belongs to the later one
    bool operator==(const IterationTrace&) const = default;
};

/// The iteration that follows a schedule, from a trace of each pass. What a chunk's forward takes and its backward returns
/// lives from one to the other, first in, first out. What a pass takes and something else returns is a message to another stage:
/// of forwards and of backwards so many stay as `depth` says, an older one is done when a pass ends that sent one more, all at
/// the end of the passes. What lies in front of the first pass and behind the last
/// happens once.
[[nodiscard]] std::vector<Allocation> play_allocations(const IterationTrace& trace, const RankSchedule& schedule,
                                                       const model::SendDepth& depth = {});

}  // namespace mgplan::simulator
