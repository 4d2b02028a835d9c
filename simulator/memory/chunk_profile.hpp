#pragma once
// Live memory while one model chunk runs forward and backward, put together from the profiles of its pieces.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/layout.hpp"
#include "simulator/memory/op_profile.hpp"
#include "simulator/memory/piece_trace.hpp"

namespace mgplan::simulator {

/// One piece's forward and backward.
struct PieceProfile {
    OpProfile forward, backward;
    /// Layers under full recompute: a forward that keeps nothing, as the first of a block, whose input is kept, and as another.
    OpProfile first_dropped, next_dropped;
};

/// Profiles of all pieces of one shard of a model.
struct ShardProfiles {
    std::array<PieceProfile, kPieces> pieces{};
    std::int64_t stream = 0;  ///< bytes of the residual stream between layers and stages
    std::int64_t ids = 0;     ///< bytes of a microbatch's token and target ids

    [[nodiscard]] const PieceProfile& of(Piece piece) const { return pieces[static_cast<std::size_t>(piece)]; }
    [[nodiscard]] PieceProfile& of(Piece piece) { return pieces[static_cast<std::size_t>(piece)]; }
};

/// `dropped`: the trace with full recompute; null where nothing is fully recomputed.
[[nodiscard]] ShardProfiles shard_profiles(const PieceTrace& trace, const PieceTrace* dropped, const PieceSizes& sizes,
                                           std::int64_t hidden);

/// What a chunk holds, layer by layer.
struct ChunkContents {
    bool embedding = false;
    bool loss = false;
    std::vector<bool> mixtures;  ///< of each decoder layer: whether it is a mixture
    std::int64_t mtp = 0;
    bool operator==(const ChunkContents&) const = default;
};

struct FullRecompute {
    RecomputeMethod method = RecomputeMethod::uniform;
    std::int64_t layers = 1;  ///< uniform: per kept input; block: of each chunk
};

/// A microbatch's forward through a chunk, and its backward. What is sent to another stage is given back at the end.
struct ChunkProfile {
    OpProfile forward, backward;
};

/// `full`: null without full recompute. The same order of pieces as model/pipeline/pipeline_executor.cpp and
/// model/layers/model_chunk.cpp run them in. O(layers).
[[nodiscard]] ChunkProfile chunk_profile(const ShardProfiles& shard, const ChunkContents& contents, const FullRecompute* full);

}  // namespace mgplan::simulator
