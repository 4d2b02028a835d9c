#pragma once
// Allocations and frees of whole chunks, per tensor, composed from the traces of their pieces: input of the allocator replay.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "simulator/memory/allocator_replay.hpp"
#include "simulator/memory/chunk_profile.hpp"
#include "simulator/memory/chunk_steps.hpp"

namespace mgplan::simulator {

/// Allocations and frees of some work, in order. A free of a tensor that earlier work allocates is open until it is appended to that work.
struct TensorTrace {
    /// Owner of tensors that one piece hands on to another: the residual stream, its gradient. They are matched by bytes, the latest first.
    static constexpr std::int64_t kHandedOn = 0;
    /// A tensor that is still allocated, or an open free. Those of the same piece's tensor have the same owner, and match the latest first.
    struct Open {
        std::int64_t owner = kHandedOn;
        std::int64_t bytes = 0;
        std::int64_t at = 0;      ///< index in `tensors`; of a free its time
        std::int64_t passed = 0;  ///< of a free: matches that stay allocated, the latest
        bool input = false;       ///< read from several streams, or left by a half's own norm
    };

    std::int64_t events = 0;          ///< times are those of allocations and frees, from 0
    std::vector<Allocation> tensors;  ///< in order
    std::vector<TensorName> names;    ///< of `tensors`; empty unless requested
    std::vector<Open> live, frees;    ///< in order

    void take(std::int64_t bytes, std::int64_t owner = kHandedOn, bool input = false);
    void free(std::int64_t bytes, std::int64_t owner = kHandedOn, std::int64_t passed = 0);
    /// Frees the latest match, without an event.
    void match(Open free);
};
void append(TensorTrace& work, const TensorTrace& next, std::int64_t times = 1);
/// The forward, which frees everything at its end except its output, the last tensor handed on, and its input if that is kept.
[[nodiscard]] TensorTrace keeping(TensorTrace forward, std::int64_t stream, bool input);

/// A trace owned by this pointer, or one that is kept elsewhere.
using TracePointer = std::shared_ptr<const PieceTrace>;

/// Traces of one shard after the engine's policies, those of halves as in ShardValues. `prediction`: null without multi-token prediction.
struct ShardTraces {
    std::vector<TracePointer> mixers, feed_forwards;
    TracePointer ends, prediction;
};
/// `stream`: bytes of the residual stream. `named`: keeps TensorTrace::names, without layers.
[[nodiscard]] StepTable<TensorTrace> tensor_steps(const LayerKinds& kinds, const ShardTraces& traces, const PieceSizes& sizes,
                                                  std::int64_t stream, bool named = false);

/// Steps of a chunk by layer, and the index of its first decoder layer in the model.
struct NumberedChunk {
    ChunkSteps steps;
    std::int64_t first_layer = 0;
};

/// Every chunk of a rank forward, then every chunk backward in reverse. Live bytes are those of chunk_profile() at any time; tensors sent
/// to another stage are freed at the end of their pass, and everything left at the end of the backward. O(tensors of all layers · log).
/// `numbered`: of each chunk, for a shard with names; else empty.
[[nodiscard]] IterationTrace chunk_traces(const StepTable<TensorTrace>& shard, std::span<const ChunkRecipe* const> chunks,
                                          std::span<const NumberedChunk> numbered = {});

}  // namespace mgplan::simulator
