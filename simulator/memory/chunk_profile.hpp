#pragma once
// Live memory while one model chunk runs forward and backward, composed of the profiles of its pieces.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/parameters/layer_kinds.hpp"
#include "simulator/memory/chunk_steps.hpp"
#include "simulator/memory/op_profile.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// The forward and the backward of some work.
struct PassProfile {
    OpProfile forward, backward;
};

/// Profiles of the pieces in a trace, by Piece; the others are empty. Parts of multi-token prediction: of the last depth.
using PieceProfiles = std::array<PassProfile, kPieces>;
[[nodiscard]] PieceProfiles piece_profiles(const PieceTrace& trace);

/// A piece's bytes kept from its forward to its backward, and further ones taken during the backward.
struct KeptAndTaken {
    std::int64_t kept = 0, taken = 0;
};
[[nodiscard]] KeptAndTaken kept_and_taken(const PassProfile& piece);
/// Kept and taken bytes of the norm and router of a MoE half-layer, with or without the shared experts that run between them. `stream`:
/// bytes of the residual stream, which the norm keeps. Asserts that the trace holds a MoE half-layer.
[[nodiscard]] KeptAndTaken router_part(const PieceTrace& mixture, std::int64_t stream, bool with_shared);

/// Kept and taken bytes of the pieces of chunks, for one microbatch.
struct PieceBytes {
    KeptAndTaken attention, dense, mixture;
    KeptAndTaken router;  ///< norm and router of the MoE half-layer
    KeptAndTaken head;
    std::vector<std::int64_t> layers;  ///< kept by a whole decoder layer, by index of its kind
};

/// One depth of multi-token prediction without its layer and loss.
struct DepthProfiles {
    PassProfile front, end, rest;
};

/// Multi-token prediction, and the norm before the loss that is traced with it.
struct PredictionProfiles {
    PassProfile norm;
    std::vector<DepthProfiles> depths;
};
[[nodiscard]] PredictionProfiles prediction_profiles(const PieceTrace& trace);

/// Profiles of the parts of chunks of one shard of a model.
struct ShardProfiles {
    PassProfile embedding, norm, loss;
    std::vector<PassProfile> layers;  ///< whole decoder layers, by index of their kind
    std::vector<std::int64_t>
        streams_of_layer;  ///< by the same: bytes that ChunkStep::Kind::discard would free if it included the last stream
    /// Half-layers captured by CUDA graphs; for models without compositions.
    KeptAndTaken attention_half, dense_half, mixture_half;
    PredictionProfiles prediction, recomputed_prediction;  ///< set for models with multi-token prediction
    std::int64_t stream = 0;                               ///< bytes of the residual stream between layers and stages
    std::int64_t ids = 0;                                  ///< bytes of a microbatch's token ids, and of each further list of ids

    /// Norm and loss.
    [[nodiscard]] KeptAndTaken head() const;
};

/// `plain`: of LayerKinds::plain_layers; `mixtures`: of LayerKinds::mixture_layers, or empty to leave these kinds of layers empty.
/// `hidden`: width of one of `streams` residual streams. Predictions are not set.
[[nodiscard]] ShardProfiles shard_profiles(const LayerKinds& kinds, std::span<const PieceProfiles> plain,
                                           std::span<const PieceProfiles> mixtures, const PieceSizes& sizes, std::int64_t hidden,
                                           std::int64_t streams = 1);

/// The profile of a kind's mixer; empty for a layer without one.
[[nodiscard]] PassProfile mixer_profile(const LayerKinds& kinds, std::span<const PieceProfiles> plain, const LayerKindHalves& kind);

/// Profile of one step of a chunk; empty for the end. `recomputed`: predictions are recomputed. Asserts that the shard's trace contains the
/// step.
[[nodiscard]] OpProfile profile_of_step(const ShardProfiles& shard, const ChunkStep& step, bool recomputed);

/// A microbatch's forward through a chunk, and its backward. Tensors sent to another stage count as freed at the end. `full`: null without
/// full recompute. O(layers).
[[nodiscard]] PassProfile chunk_profile(const ShardProfiles& shard, const ChunkContents& contents, const ChunkRecompute* full);

/// Peak bytes above the start of the chunk's forward while its decoder layers run, forward or backward: chunk_profile() without embedding,
/// predictions, norm and loss. O(layers).
[[nodiscard]] std::int64_t peak_of_layers(const ShardProfiles& shard, const ChunkContents& contents, const ChunkRecompute* full);

}  // namespace mgplan::simulator
