#pragma once
// The takes and returns of whole chunks, tensor by tensor, put together from the traces of their pieces: what an allocator is
// played with.

#include <cstdint>
#include <span>

#include "simulator/memory/allocator_replay.hpp"
#include "simulator/memory/chunk_steps.hpp"
#include "simulator/memory/shard_layers.hpp"

namespace mgplan::simulator {

/// Every chunk of a rank forward, then every chunk backward in reverse, in the order of chunk_steps(). A tensor that one piece
/// takes and another gives back (the residual stream, its gradient) ends with the first return of as many bytes that follows, the
/// latest taken first. Its live bytes at any instant are those of chunk_profile(); what is sent to another stage is returned at the
/// end of its pass. `full`: null without full recompute. O(tensors of all layers · log).
[[nodiscard]] IterationTrace chunk_traces(const ShardTraces& shard, std::span<const ChunkContents> chunks, const ChunkRecompute* full);

}  // namespace mgplan::simulator
