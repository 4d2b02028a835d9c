#pragma once
// Device memory that PyTorch's caching allocator reserves after some training iterations: replays the recorded allocations and frees of a
// rank under its rules (caching_allocator.hpp). Reserved memory above the peak of live tensors is fragmentation.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/pipeline/send_depth.hpp"
#include "plan/schedule/schedule.hpp"
#include "simulator/memory/allocator_history.hpp"
#include "simulator/memory/caching_allocator.hpp"
#include "simulator/memory/memory_prediction.hpp"

namespace mgplan::simulator {

/// Replays `setup` once and `iteration` `iterations` times (at least once), or until an iteration reserves no more than the one before.
/// Allocations that an iteration keeps happen only the first time: optimizer state and lazily created workspaces. The second iteration
/// finds other holes than the first; the result is the maximum reserved (segments are freed only at the limit). Allocations of 0 bytes are
/// skipped.
[[nodiscard]] ReservedMemory replay_allocator(std::span<const Allocation> setup, std::span<const Allocation> iteration, int iterations,
                                              const CachingAllocatorOptions& options = {});

/// replay_allocator(), or nothing if fragmentation exceeds this share of the peak of allocated bytes; stops as soon as that is certain.
/// `record`: receives the events; null: none are kept.
[[nodiscard]] std::optional<ReservedMemory> replay_allocator_within(double most_fragmentation, std::span<const Allocation> setup,
                                                                    std::span<const Allocation> iteration, int iterations,
                                                                    const CachingAllocatorOptions& options = {},
                                                                    ReplayRecord* record = nullptr);

/// A forward (+k) or backward (-k) of chunk k-1 in a trace: its allocations and frees at times [begin, end).
struct TracedPass {
    int op = 0;
    std::int64_t begin = 0, end = 0;
    bool operator==(const TracedPass&) const = default;
};

/// Description of a traced tensor.
struct TensorName {
    std::string_view tensor;  ///< a literal
    std::string_view part;    ///< a literal: the module that allocates it
    std::int64_t layer = -1;  ///< decoder layer of the model, from 0; -1 outside of them
    bool operator==(const TensorName&) const = default;
};

/// A rank's iteration in which every chunk runs forward and backward once.
struct IterationTrace {
    std::vector<Allocation> tensors;
    std::vector<TracedPass> passes;      ///< in order; events between two passes belong to the later one
    std::vector<TensorName> names = {};  ///< of `tensors`; empty unless requested
    bool operator==(const IterationTrace&) const = default;
};

/// Origin of an allocation of play_allocations().
struct PlayedTensor {
    std::size_t tensor = 0;          ///< index in IterationTrace::tensors
    std::optional<PipelineOp> pass;  ///< the pass that allocates it; nothing before the first and after the last
};

/// Expands a trace of each pass to the iteration of a schedule. Tensors taken in a chunk's forward and freed in its backward live from one
/// to the other, first in, first out. A tensor taken in a pass and freed outside of both is a message to another stage: at most `depth` of
/// forwards and of backwards stay alive; the oldest is freed when a pass that sent one more ends, and all at the end of the passes. Events
/// before the first pass and after the last happen once. `origins`: receives one element for each allocation; null: none are kept.
[[nodiscard]] std::vector<Allocation> play_allocations(const IterationTrace& trace, const RankSchedule& schedule,
                                                       const model::SendDepth& depth = {}, std::vector<PlayedTensor>* origins = nullptr);

}  // namespace mgplan::simulator
