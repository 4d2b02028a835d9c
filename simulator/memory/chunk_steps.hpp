#pragma once
// Order in which the steps of a model chunk run forward and backward, and composition of their values in this order: sums of bytes and
// profiles (chunk_profile.hpp) or tensors (chunk_trace.hpp).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/layout/layout.hpp"
#include "simulator/memory/op_profile.hpp"
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

/// Slots of steps in a StepTable. A piece's forward has an even slot, its backward the next one.
namespace slots {
/// `kTakeIds`, `kFreeIds`: one list of token or target ids. `kReceive`, `kReceiveGradient`: the residual stream or its gradient arrives
/// from another stage. `kGive`: one tensor of the residual stream is freed: sent, or not needed any more. `kLosses`: the losses have been
/// read.
inline constexpr std::size_t kTakeIds = 0, kFreeIds = 1, kReceive = 2, kReceiveGradient = 3, kGive = 4, kLosses = 5;
inline constexpr std::size_t kEmbedding = 6, kNorm = 8, kLoss = 10, kPredictions = 12;
/// Steps of multi-token prediction: its norm, then three pieces of each traced depth.
inline constexpr std::size_t kStepsOfPrediction = 2 + 6 * static_cast<std::size_t>(kMostDepths);
/// Predictions that are not recomputed come first, then those that are.
inline constexpr std::size_t kLayers = kPredictions + 2 * kStepsOfPrediction;

/// Steps of one kind of decoder layer. A forward without kept tensors for its backward frees all tensors when it ends except its output,
/// and except its input in the first layer of a recomputed block. Recompute of residual streams frees and takes again the streams after the
/// halves of a layer, of a block's last layer all except the output, and the inputs that the halves read from the streams.
enum class LayerStep : std::uint8_t {
    forward,
    backward,
    forward_keeping_input,
    forward_keeping_nothing,
    free_streams,
    free_streams_but_output,
    free_inputs,
    take_streams,
    take_streams_but_output,
    take_inputs
};
inline constexpr std::size_t kStepsOfLayer = 10;

[[nodiscard]] constexpr std::size_t of_layer(std::size_t kind, LayerStep step) {
    return kLayers + kStepsOfLayer * kind + static_cast<std::size_t>(step);
}
/// True if decoder layers run in the step.
[[nodiscard]] constexpr bool runs_layer(std::size_t slot) {
    return slot >= kLayers && (slot - kLayers) % kStepsOfLayer < static_cast<std::size_t>(LayerStep::free_streams);
}
/// Index of the forward of a prediction's piece among kStepsOfPrediction: norm, mtp_front, mtp_end or mtp_rest.
[[nodiscard]] constexpr std::size_t of_prediction(Piece piece, std::int64_t depth) {
    if (piece == Piece::norm) return 0;
    return 2 + 6 * static_cast<std::size_t>(depth) + (piece == Piece::mtp_front ? 0 : piece == Piece::mtp_end ? 2 : 4);
}
}  // namespace slots

/// `count` equal steps in sequence.
struct ChunkStep {
    std::size_t slot = 0;
    std::int64_t count = 1;
    bool operator==(const ChunkStep&) const = default;
};

struct ChunkSteps {
    std::vector<ChunkStep> forward, backward;  ///< without two equal steps in sequence
    /// Decoder layer of the chunk in which each single step runs, from 0; -1 outside of them. One element for each of a step's `count`.
    std::vector<std::int32_t> forward_layers, backward_layers;
};

/// `full`: null without full recompute and without blocks. The order of model/pipeline/pipeline_executor.cpp, model/layers/model_chunk.cpp
/// and mtp.cpp. O(layers).
[[nodiscard]] ChunkSteps chunk_steps(const ChunkContents& contents, const ChunkRecompute* full);

/// The steps of a chunk with repeated sequences merged.
class ChunkRecipe {
public:
    /// `full` as for chunk_steps().
    ChunkRecipe(const ChunkContents& contents, const ChunkRecompute* full);

    /// Composes the values of the steps, by slot, with append(Value& work, const Value& next, times), which adds `next` `times` times.
    template <class Value>
    [[nodiscard]] BothPasses<Value> compose(const std::vector<Value>& values) const {
        return {forward_.compose(values), backward_.compose(values)};
    }

private:
    /// Steps [begin, end), repeated `times` times.
    struct Loop {
        std::size_t begin = 0, end = 0;
        std::int64_t times = 1;
    };
    struct Pass {
        explicit Pass(std::vector<ChunkStep> of_pass);

        template <class Value>
        [[nodiscard]] Value compose(const std::vector<Value>& values) const {
            Value all{};
            for (const Loop& loop : loops) {
                Value turn{};
                for (std::size_t i = loop.begin; i < loop.end; ++i) append(turn, values[steps[i].slot], steps[i].count);
                append(all, turn, loop.times);
            }
            return all;
        }

        std::vector<ChunkStep> steps;
        std::vector<Loop> loops;
    };

    explicit ChunkRecipe(ChunkSteps steps) : forward_(std::move(steps.forward)), backward_(std::move(steps.backward)) {}

    Pass forward_, backward_;
};

}  // namespace mgplan::simulator
