#pragma once
// Counts the CUDA graphs that a pipeline rank captures and the sets of fixed addresses they need, from its schedule alone.
//
// A captured graph reads and writes fixed addresses, so a microbatch's buffers must stay where its forward graph put them until its
// backward graph has run. Two policies:
//
//   megatron  Megatron-LM's (core/transformer/cuda_graphs.py TECudaGraphHelper, commit d98e8a64): with pp > 1 one
//             forward and one backward graph for each layer and microbatch, with pp = 1 for each layer; static inputs come
//             from a first-in-first-out pool for each input shape, given back at the backward.
//   slots     mgplan's own: a slot holds the buffers of one chunk for one microbatch. A forward takes the slot that has
//             been free for longest, its backward gives it back, so the slots needed are the chunks alive at most: memory
//             and graphs do not grow with the number of microbatches. Captured, layer by layer, are the (chunk, slot)
//             pairs that occur.

#include <cstdint>
#include <span>
#include <vector>

#include "plan/schedule/schedule.hpp"

namespace mgplan {

enum class GraphPolicy : std::uint8_t { slots, megatron };

/// Captured layers of one chunk that have the same shape (and type) of static input; equal numbers, equal shapes.
struct LayerRun {
    std::int32_t shape = 0;
    std::int64_t layers = 0;
    bool operator==(const LayerRun&) const = default;
};
/// One model chunk: none where nothing of it is captured.
using GraphedChunk = std::vector<LayerRun>;

/// Counts of one pipeline rank.
struct GraphCounts {
    int rank = 0;
    std::int64_t forward_graphs = 0;
    std::int64_t backward_graphs = 0;
    std::int64_t static_buffers = 0;    ///< static inputs at distinct addresses
    std::int64_t slots = 0;             ///< chunks' buffers held at once (megatron has no slots; this is the number it fills)
    std::int64_t peak_live_chunks = 0;  ///< chunks forwarded and not yet backwarded, at most
    bool operator==(const GraphCounts&) const = default;
};

/// The slot of each entry of a rank's order.
struct SlotPlan {
    std::vector<std::int32_t> slot;                ///< parallel to RankSchedule::ops
    std::int64_t slots = 0;                        ///< slots are numbered 0 … slots - 1
    std::vector<std::vector<std::int32_t>> pairs;  ///< for each chunk the slots it works in, ascending
};

/// Replays a rank's order first-in-first-out. Chunks whose captured layers have the same set of shapes share a pool; a chunk
/// without captured layers shares the first one. With one pool `slots` is the rank's peak_live.
[[nodiscard]] SlotPlan plan_slots(const RankSchedule& rank, std::span<const GraphedChunk> chunks);

/// Counts under a policy; one entry of `chunks` for each model chunk of the rank. Schedules with backwards only. For each shape, a slot has
/// the static inputs of the chunk that has most layers of the shape among those that use the slot.
[[nodiscard]] GraphCounts count_graphs(const Schedule& schedule, int pp_rank, std::span<const GraphedChunk> chunks, GraphPolicy policy);

}  // namespace mgplan
