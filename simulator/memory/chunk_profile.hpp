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

/// A stretch of work forward, and its backward.
struct PassProfile {
    OpProfile forward, backward;
};

/// Profiles of the pieces that a trace holds, by Piece; the others are empty.
using PieceProfiles = std::array<PassProfile, kPieces>;
[[nodiscard]] PieceProfiles piece_profiles(const PieceTrace& trace);

/// A piece's bytes kept from its forward to its backward, and further ones taken during the backward.
struct KeptAndTaken {
    std::int64_t kept = 0, taken = 0;
};
[[nodiscard]] KeptAndTaken kept_and_taken(const PassProfile& piece);

/// What chunks of one shard of a model are made of.
struct ShardProfiles {
    PassProfile embedding, head;
    PassProfile dense, mixture;  ///< whole decoder layers
    KeptAndTaken attention_half, dense_half, mixture_half;
    std::int64_t stream = 0;  ///< bytes of the residual stream between layers and stages
    std::int64_t ids = 0;     ///< bytes of a microbatch's token and target ids

    [[nodiscard]] const PassProfile& layer(bool is_mixture) const { return is_mixture ? mixture : dense; }
};

/// `mixture`: of trace_mixture(), null for a model without mixtures. `hidden`: of the residual stream.
[[nodiscard]] ShardProfiles shard_profiles(const PieceProfiles& dense, const PieceProfiles* mixture, const PieceSizes& sizes,
                                           std::int64_t hidden);

/// What a chunk holds, layer by layer.
struct ChunkContents {
    bool embedding = false;
    bool loss = false;
    std::vector<bool> mixtures;  ///< of each decoder layer: whether it is a mixture
    std::int64_t mtp = 0;
    bool mtp_is_mixture = false;  ///< the decoder layer of each prediction
    bool operator==(const ChunkContents&) const = default;
};

struct FullRecompute {
    RecomputeMethod method = RecomputeMethod::uniform;
    std::int64_t layers = 1;  ///< uniform: per kept input; block: of each chunk
};

/// A microbatch's forward through a chunk, and its backward. What is sent to another stage is given back at the end.
/// `full`: null without full recompute. The same order of pieces as model/pipeline/pipeline_executor.cpp and
/// model/layers/model_chunk.cpp run them in. O(layers).
[[nodiscard]] PassProfile chunk_profile(const ShardProfiles& shard, const ChunkContents& contents, const FullRecompute* full);

}  // namespace mgplan::simulator
