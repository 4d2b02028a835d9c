#pragma once
// Live memory while one model chunk runs forward and backward, put together from the profiles of its pieces.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/parameters/layer_kinds.hpp"
#include "simulator/memory/chunk_steps.hpp"
#include "simulator/memory/op_profile.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// A stretch of work forward, and its backward.
struct PassProfile {
    OpProfile forward, backward;
};

/// Profiles of the pieces that a trace holds, by Piece; the others are empty. A prediction's parts are those of the last depth.
using PieceProfiles = std::array<PassProfile, kPieces>;
[[nodiscard]] PieceProfiles piece_profiles(const PieceTrace& trace);

/// A piece's bytes kept from its forward to its backward, and further ones taken during the backward.
struct KeptAndTaken {
    std::int64_t kept = 0, taken = 0;
};
[[nodiscard]] KeptAndTaken kept_and_taken(const PassProfile& piece);
/// The same of a mixture's norm and router alone, with or without the shared experts that run between them. `stream`: bytes of the
/// residual stream, which the norm keeps. The trace must hold a mixture (assertion).
[[nodiscard]] KeptAndTaken router_part(const PieceTrace& mixture, std::int64_t stream, bool with_shared);

/// What the pieces of chunks keep and take, for one microbatch.
struct PieceBytes {
    KeptAndTaken attention, dense, mixture;
    KeptAndTaken router;  ///< of the mixture: its norm and router
    KeptAndTaken head;
    std::vector<std::int64_t> layers;  ///< kept by a whole decoder layer, by index of its kind
};

/// One depth of multi-token prediction without its layer and loss.
struct DepthProfiles {
    PassProfile front, end, rest;
};

/// Multi-token prediction, and the norm in front of the loss beside it.
struct PredictionProfiles {
    PassProfile norm;
    std::vector<DepthProfiles> depths;
};
[[nodiscard]] PredictionProfiles prediction_profiles(const PieceTrace& trace);

/// What chunks of one shard of a model are made of.
struct ShardProfiles {
    PassProfile embedding, norm, loss;
    std::vector<PassProfile> layers;  ///< whole decoder layers, by index of their kind
    std::vector<std::int64_t>
        streams_of_layer;  ///< by the same: bytes that ChunkStep::Kind::discard gives back, were the last stream among it
    /// Halves that CUDA graphs take apart, for models that fields describe.
    KeptAndTaken attention_half, dense_half, mixture_half;
    PredictionProfiles prediction, recomputed_prediction;  ///< of models with multi-token prediction
    std::int64_t stream = 0;                               ///< bytes of the residual stream between layers and stages
    std::int64_t ids = 0;                                  ///< bytes of a microbatch's token ids; as many of each further list

    /// Norm and loss.
    [[nodiscard]] KeptAndTaken head() const;
};

/// `plain`: of LayerKinds::plain_layers; `mixture`: of trace_mixture(), null for a model without mixtures, whose kinds of layer then stay
/// empty. `hidden`: width of one of `streams` residual streams. Without predictions.
[[nodiscard]] ShardProfiles shard_profiles(const LayerKinds& kinds, std::span<const PieceProfiles> plain, const PieceProfiles* mixture,
                                           const PieceSizes& sizes, std::int64_t hidden, std::int64_t streams = 1);

/// The profile of a kind's mixer; nothing happens in a layer that has none.
[[nodiscard]] PassProfile mixer_profile(const LayerKinds& kinds, std::span<const PieceProfiles> plain, const LayerKindHalves& kind);

/// What one step of a chunk does; of the end nothing. `recomputed`: predictions are. The shard must have been traced with what the
/// step runs (assertion).
[[nodiscard]] OpProfile profile_of_step(const ShardProfiles& shard, const ChunkStep& step, bool recomputed);

/// A microbatch's forward through a chunk, and its backward. What is sent to another stage is given back at the end.
/// `full`: null without full recompute. O(layers).
[[nodiscard]] PassProfile chunk_profile(const ShardProfiles& shard, const ChunkContents& contents, const ChunkRecompute* full);

/// Most bytes above those in front of the chunk's forward while its decoder layers run, forward or backward: chunk_profile() without the
/// instants of embedding, predictions, norm and loss. O(layers).
[[nodiscard]] std::int64_t peak_of_layers(const ShardProfiles& shard, const ChunkContents& contents, const ChunkRecompute* full);

}  // namespace mgplan::simulator
