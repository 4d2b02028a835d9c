#pragma once
// In which order the pieces of a model chunk run forward and backward: the one description that profiles (chunk_profile.hpp) and
// traces (chunk_trace.hpp) of whole chunks are put together by.

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/device/memory_use.hpp"
#include "plan/layout/layout.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// What a chunk holds, layer by layer.
struct ChunkContents {
    bool embedding = false;
    bool loss = false;
    /// Index of each decoder layer's kind; kinds that differ in their window alone share the first one's (LayerKinds::without_window).
    std::vector<std::uint16_t> layers;
    std::int64_t mtp = 0;
    std::uint16_t mtp_layer = 0;   ///< the same of the decoder layer of each prediction
    std::int64_t further_ids = 0;  ///< lists of target ids beside tokens and targets: one for each prediction of the rank
    bool operator==(const ChunkContents&) const = default;
};

/// Full recompute of a chunk, or what is made again for blocks of its layers together.
struct ChunkRecompute {
    RecomputeMethod method = RecomputeMethod::uniform;
    std::int64_t layers = 1;  ///< uniform: per kept input; block: of each chunk; of streams: of a block, 0: all of the chunk
    /// Residual streams that maps mix: those within a block of layers and what halves read of them are given back behind the block's
    /// forward and made again in front of its backward (RecomputeModule::mhc; Megatron-LM d98e8a64, hyper_connection.py,
    /// build_mhc_recompute_layer_plan, and random.py, CheckpointWithoutOutputManager). Not full recompute.
    bool streams = false;
    bool operator==(const ChunkRecompute&) const = default;
};

/// Whether predictions are recomputed whole: under the uniform method alone (Megatron-core, multi_token_prediction.py).
[[nodiscard]] inline bool recomputes_prediction(const ChunkRecompute* full) {
    return full != nullptr && !full->streams && full->method == RecomputeMethod::uniform;
}

/// One step of a pass: a piece or a whole decoder layer in one direction, or tensors that come and go between them.
struct ChunkStep {
    enum class Kind : std::uint8_t {
        piece,    ///< embedding, norm, loss or a part of a prediction
        layer,    ///< attention and MLP half
        ids,      ///< `count` lists of token and target ids are taken (forward) or given back (backward)
        receive,  ///< the residual stream or its gradient comes from another stage
        give,     ///< one tensor of the residual stream is given back: sent, or wanted by nobody
        losses,   ///< the losses have been read
        discard,  ///< `count` layers give back their streams, and what their halves read of them …
        remake,   ///< … and take them again, in front of their backward
        rest,     ///< the end: nothing of the microbatch is left
    };
    /// A forward that keeps nothing for its backward gives everything but its output back when it has ended …
    enum class Drop : std::uint8_t {
        none,
        but_input,  ///< … and the input that it will run from again
        all,        ///< … its input too
    };
    Kind kind = Kind::piece;
    Piece piece = Piece::embedding;
    bool backward = false;
    std::uint16_t layer_kind = 0;  ///< of a layer: index of its kind
    bool predicting = false;       ///< norm of a chunk with multi-token prediction
    std::int64_t depth = 0;        ///< of multi-token prediction, as traced: below kMostDepths
    std::int64_t instance = 0;     ///< layers from 0, then depths: what forward and backward have in common
    std::int64_t count = 1;        ///< of layers: so many in a row, with instances counting up (forward) or down (backward)
    Drop drop = Drop::none;
    bool ends_block = false;    ///< of discard and remake: the last stream of these layers is the block's output, which stays
    std::string_view tensor{};  ///< of `receive`
};

struct ChunkSteps {
    std::vector<ChunkStep> forward, backward;
};

/// `full`: null without full recompute and without blocks. As model/pipeline/pipeline_executor.cpp, model/layers/model_chunk.cpp and
/// mtp.cpp run them. O(layers).
[[nodiscard]] ChunkSteps chunk_steps(const ChunkContents& contents, const ChunkRecompute* full);

}  // namespace mgplan::simulator
