#pragma once
// Values of the steps of model chunks of one shard, from the traces of their pieces, and live memory while a chunk runs forward and
// backward.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/parameters/layer_kinds.hpp"
#include "simulator/memory/chunk_steps.hpp"
#include "simulator/memory/op_profile.hpp"
#include "simulator/piece/piece_trace.hpp"

namespace mgplan::simulator {

/// Values of the pieces in a trace, by Piece; the others are empty. Parts of multi-token prediction: of the last depth.
template <class Value>
using PieceValues = std::array<BothPasses<Value>, kPieces>;
using PieceProfiles = PieceValues<OpProfile>;

/// `value_of`: of a PieceRange of the trace.
template <class Value, class ValueOf>
[[nodiscard]] PieceValues<Value> piece_values(const PieceTrace& trace, const ValueOf& value_of) {
    PieceValues<Value> values{};
    for (const PieceRange& range : trace.pieces) {
        if (&trace.range(range.piece, range.backward) != &range) continue;
        BothPasses<Value>& piece = values[static_cast<std::size_t>(range.piece)];
        (range.backward ? piece.backward : piece.forward) = value_of(range);
    }
    return values;
}
[[nodiscard]] PieceProfiles piece_profiles(const PieceTrace& trace);

/// Values of the halves of a model's layers, by LayerKinds::mixers and feed_forwards, and of the pieces around the layers.
template <class Value>
struct ShardValues {
    std::vector<BothPasses<Value>> mixers, feed_forwards;
    BothPasses<Value> embedding, norm, loss;

    void set_ends(const PieceValues<Value>& ends) {
        embedding = ends[static_cast<std::size_t>(Piece::embedding)];
        norm = ends[static_cast<std::size_t>(Piece::norm)];
        loss = ends[static_cast<std::size_t>(Piece::loss)];
    }
    /// The values of a half of a kind of layers; empty where it has none.
    [[nodiscard]] BothPasses<Value> mixer(const LayerKindHalves& kind) const { return at(mixers, kind.mixer); }
    [[nodiscard]] BothPasses<Value> feed_forward(const LayerKindHalves& kind) const { return at(feed_forwards, kind.feed_forward); }

private:
    static BothPasses<Value> at(const std::vector<BothPasses<Value>>& halves, int half) {
        return half == LayerKindHalves::kNone ? BothPasses<Value>{} : halves[static_cast<std::size_t>(half)];
    }
};

/// Values of slots::kStepsOfPrediction steps from a trace of multi-token prediction; empty for depths that it lacks.
template <class Value, class ValueOf>
[[nodiscard]] std::vector<Value> prediction_values(const PieceTrace& trace, const ValueOf& value_of) {
    std::vector<Value> values(slots::kStepsOfPrediction);
    for (const PieceRange& range : trace.pieces) {
        if (range.piece == Piece::norm || range.piece >= Piece::mtp_front)
            values[slots::of_prediction(range.piece, range.layer) + (range.backward ? 1 : 0)] = value_of(range);
    }
    return values;
}
[[nodiscard]] std::vector<OpProfile> prediction_profiles(const PieceTrace& trace);

/// Values of every step that a chunk of one shard of a model can have, by slot.
template <class Value>
struct StepTable {
    std::int64_t stream = 0;    ///< bytes of the residual stream between layers and stages
    std::vector<Value> values;  ///< assignment from a table of the same size allocates nothing

    StepTable() = default;
    StepTable(std::int64_t bytes_of_stream, std::size_t kinds)
        : stream(bytes_of_stream), values(slots::of_layer(kinds, slots::LayerStep::forward)) {}

    /// Sets forward and backward of a kind of layer.
    void set_layer(std::size_t kind, const BothPasses<Value>& layer) {
        using slots::LayerStep;
        Value* steps = &values[slots::of_layer(kind, LayerStep::forward)];
        steps[static_cast<std::size_t>(LayerStep::forward_keeping_input)] = keeping(layer.forward, stream, true);
        steps[static_cast<std::size_t>(LayerStep::forward_keeping_nothing)] = keeping(layer.forward, stream, false);
        steps[static_cast<std::size_t>(LayerStep::forward)] = layer.forward;
        steps[static_cast<std::size_t>(LayerStep::backward)] = layer.backward;
    }

    /// Sets the steps of embedding, norm, loss and layers.
    void set_pieces(const LayerKinds& kinds, const ShardValues<Value>& pieces);

    /// Sets the steps of predictions that are recomputed, or of those that are not: prediction_values().
    void set_predictions(bool recomputed, std::vector<Value> steps) {
        const std::size_t first = slots::kPredictions + (recomputed ? slots::kStepsOfPrediction : 0);
        std::ranges::move(steps, values.begin() + static_cast<std::ptrdiff_t>(first));
    }
};

template <class Value>
void StepTable<Value>::set_pieces(const LayerKinds& kinds, const ShardValues<Value>& pieces) {
    const auto set = [&](std::size_t slot, const BothPasses<Value>& piece) {
        values[slot] = piece.forward;
        values[slot + 1] = piece.backward;
    };
    set(slots::kEmbedding, pieces.embedding);
    set(slots::kNorm, pieces.norm);
    set(slots::kLoss, pieces.loss);
    for (std::size_t i = 0; i < kinds.size(); ++i) set_layer(i, nested(pieces.mixer(kinds.kinds[i]), pieces.feed_forward(kinds.kinds[i])));
}

/// Half-layers of a kind of layer, which each read the residual stream and add to it; and the tensors that they read from several streams,
/// or that a norm of its own in front of a half leaves.
struct StreamUse {
    std::int64_t halves = 0, inputs = 0;
};
[[nodiscard]] StreamUse stream_use(const LayerKinds& kinds, const LayerKindHalves& kind);

/// A piece's bytes kept from its forward to its backward, and further ones taken during the backward.
struct KeptAndTaken {
    std::int64_t kept = 0, taken = 0;
};
/// Kept and taken bytes of the norm and router of a MoE half-layer, with or without the shared experts that run between them. `stream`:
/// bytes of the residual stream, which the norm keeps. Asserts that the trace holds a MoE half-layer.
[[nodiscard]] KeptAndTaken router_part(const PieceTrace& mixture, std::int64_t stream, bool with_shared);

/// Kept and taken bytes of the pieces of chunks, for one microbatch.
struct PieceBytes {
    std::vector<KeptAndTaken> mixers, feed_forwards;  ///< by LayerKinds::mixers and feed_forwards
    KeptAndTaken router;                              ///< norm and router of the MoE half-layer; 0 in ShardProfiles
    KeptAndTaken head;                                ///< norm and loss
    std::vector<std::int64_t> layers;                 ///< kept by a whole decoder layer, by index of its kind

    /// Bytes of a half of a kind of layers; zero where it has none.
    [[nodiscard]] KeptAndTaken mixer(const LayerKindHalves& kind) const { return at(mixers, kind.mixer); }
    [[nodiscard]] KeptAndTaken feed_forward(const LayerKindHalves& kind) const { return at(feed_forwards, kind.feed_forward); }

private:
    static KeptAndTaken at(const std::vector<KeptAndTaken>& halves, int half) {
        return half == LayerKindHalves::kNone ? KeptAndTaken{} : halves[static_cast<std::size_t>(half)];
    }
};

/// Profiles of the parts of chunks of one shard of a model.
struct ShardProfiles {
    StepTable<OpProfile> steps;
    PieceBytes bytes;
};

/// `hidden`: width of one of `streams` residual streams. Predictions are not set.
[[nodiscard]] ShardProfiles shard_profiles(const LayerKinds& kinds, const ShardValues<OpProfile>& pieces, const PieceSizes& sizes,
                                           std::int64_t hidden, std::int64_t streams = 1);

[[nodiscard]] StepTable<MemoryDelta> deltas_of(const StepTable<OpProfile>& steps);

/// A microbatch's forward through a chunk, and its backward. Tensors sent to another stage count as freed at the end, like everything left
/// of the microbatch.
[[nodiscard]] PassProfile chunk_profile(const StepTable<OpProfile>& shard, const ChunkRecipe& chunk);

/// Peak bytes above the start of the chunk's forward while its decoder layers run, forward or backward: chunk_profile() without embedding,
/// predictions, norm and loss. O(layers).
[[nodiscard]] std::int64_t peak_of_layers(const StepTable<OpProfile>& shard, const ChunkSteps& chunk);

}  // namespace mgplan::simulator
