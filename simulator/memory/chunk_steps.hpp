#pragma once
// Order in which the pieces of a model chunk run forward and backward. Both profiles (chunk_profile.hpp) and traces (chunk_trace.hpp) of
// whole chunks are composed from it.

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/device/memory_use.hpp"
#include "plan/layout/layout.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// Contents of a chunk, layer by layer.
struct ChunkContents {
    bool embedding = false;
    bool loss = false;
    /// Index of each decoder layer's kind; kinds that differ only in their window share the first one's (LayerKinds::without_window).
    std::vector<std::uint16_t> layers;
    std::int64_t mtp = 0;
    std::uint16_t mtp_layer = 0;   ///< kind of the decoder layer of each prediction
    std::int64_t further_ids = 0;  ///< lists of target ids besides tokens and targets: one for each prediction of the rank
    bool operator==(const ChunkContents&) const = default;
};

/// Full recompute of a chunk, or recompute of residual streams in blocks of layers.
struct ChunkRecompute {
    RecomputeMethod method = RecomputeMethod::uniform;
    std::int64_t layers = 1;  ///< uniform: per kept input; block: of each chunk; streams: of a block, 0: all of the chunk
    /// Recomputes mixed residual streams: streams within a block of layers and the halves' inputs read from them are freed after the
    /// block's forward and recomputed before its backward (RecomputeModule::mhc; Megatron-LM d98e8a64, hyper_connection.py,
    /// build_mhc_recompute_layer_plan, and random.py, CheckpointWithoutOutputManager). Not full recompute.
    bool streams = false;
    bool operator==(const ChunkRecompute&) const = default;
};

/// True if whole predictions are recomputed: only with the uniform method (Megatron-core, multi_token_prediction.py).
[[nodiscard]] inline bool recomputes_prediction(const ChunkRecompute* full) {
    return full != nullptr && !full->streams && full->method == RecomputeMethod::uniform;
}

/// One step of a pass: a piece or a whole decoder layer in one direction, or tensors taken or freed between them.
struct ChunkStep {
    enum class Kind : std::uint8_t {
        piece,    ///< embedding, norm, loss or a part of a prediction
        layer,    ///< attention and MLP half-layer
        ids,      ///< `count` lists of token and target ids are taken (forward) or freed (backward)
        receive,  ///< the residual stream or its gradient arrives from another stage
        give,     ///< one tensor of the residual stream is freed: sent, or not needed any more
        losses,   ///< the losses have been read
        discard,  ///< `count` layers free their streams and the inputs read from them
        remake,   ///< `count` layers take these streams and inputs again, before their backward
        rest,     ///< the end: frees everything left of the microbatch
    };
    /// Tensors that a forward without kept tensors for its backward frees when it ends.
    enum class Drop : std::uint8_t {
        none,
        but_input,  ///< everything except its output and the input for its recompute
        all,        ///< everything except its output
    };
    Kind kind = Kind::piece;
    Piece piece = Piece::embedding;
    bool backward = false;
    std::uint16_t layer_kind = 0;  ///< for a layer: index of its kind
    bool predicting = false;       ///< norm of a chunk with multi-token prediction
    std::int64_t depth = 0;        ///< for multi-token prediction: traced depth, below kMostDepths
    std::int64_t instance = 0;     ///< layers from 0, then depths: equal in forward and backward
    std::int64_t count = 1;        ///< for layers: number in sequence, with instances counting up (forward) or down (backward)
    Drop drop = Drop::none;
    bool ends_block = false;    ///< for discard and remake: the last stream of these layers is the block's output, which stays
    std::string_view tensor{};  ///< for receive: name of the tensor
};

struct ChunkSteps {
    std::vector<ChunkStep> forward, backward;
};

/// `full`: null without full recompute and without blocks. The order of model/pipeline/pipeline_executor.cpp, model/layers/model_chunk.cpp
/// and mtp.cpp. O(layers).
[[nodiscard]] ChunkSteps chunk_steps(const ChunkContents& contents, const ChunkRecompute* full);

}  // namespace mgplan::simulator
