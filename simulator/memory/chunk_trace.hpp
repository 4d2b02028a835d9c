#pragma once
// Allocations and frees of whole chunks, per tensor, composed from the traces of their pieces: input of the allocator replay.

#include <cstdint>
#include <span>

#include "simulator/memory/allocator_replay.hpp"
#include "simulator/memory/chunk_steps.hpp"
#include "simulator/memory/shard_layers.hpp"

namespace mgplan::simulator {

/// Every chunk of a rank forward, then every chunk backward in reverse, in the order of chunk_steps(). A tensor taken by one piece and
/// freed by another (the residual stream, its gradient) ends at the next free of the same number of bytes, the latest taken first. Its live
/// bytes are those of chunk_profile() at any time; tensors sent to another stage are freed at the end of their pass. `full`: null without
/// full recompute. O(tensors of all layers · log).
[[nodiscard]] IterationTrace chunk_traces(const ShardTraces& shard, std::span<const ChunkContents> chunks, const ChunkRecompute* full);

}  // namespace mgplan::simulator
