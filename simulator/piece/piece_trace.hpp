#pragma once
// Record of a model's layers for one microbatch on one rank, made by running them on shapes: allocations, computation and communication.
// Source of memory, time and model FLOPs.

#include <cstdint>
#include <optional>
#include <vector>

#include "model/device/kernel_traits.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/training/offload.hpp"
#include "simulator/piece/piece_step.hpp"
#include "simulator/piece/shard_key.hpp"

namespace mgplan::simulator {

/// Everything that a layer's record depends on.
struct PieceSizes : ShardKey {
    std::int64_t sequence = 0;  ///< tokens
    Dtype dtype = Dtype::bf16;  ///< parameters and activations
    Dtype grad_dtype = Dtype::fp32;
    model::KernelTraits traits;        ///< kernels whose scratch is counted
    bool keep_steps = false;           ///< records steps too, not only tensors: twice the work
    bool whole_ring = false;           ///< records the step of each rank of a ring; else four represent a larger ring
    EnumSet<OffloadModule> offloaded;  ///< modules whose inputs are offloaded to the host
    bool fuses_windows = false;        ///< sliding windows use the kernels of the whole sequence, with the same scratch

    /// Rows inside a tensor-parallel region, and outside it.
    [[nodiscard]] std::int64_t rows() const { return micro_batch * sequence / cp; }
    [[nodiscard]] std::int64_t rows_outside() const { return sequence_parallel ? rows() / tp : rows(); }
};

/// Parts of a model chunk. A decoder layer is a token mixer, either attention or one with a state along the sequence (recurrent), and a
/// feed-forward, dense or MoE (`mixture`); either may be missing. The head is a norm and the loss, which includes the output layer. One
/// depth of multi-token prediction (model/layers/mtp.hpp) is a front up to its projection, which contains an embedding; a decoder layer; an
/// end with a norm (in the backward everything before the layer's, including the front again if it is recomputed); a loss; and a rest
/// (forward: after the loss; backward: between the layer's recompute and its backward).
enum class Piece : std::uint8_t {
    embedding,
    attention,
    dense,
    mixture,
    recurrent,
    norm,
    loss,
    mtp_embedding,
    mtp_front,
    mtp_end,
    mtp_rest
};
inline constexpr int kPieces = 11;

/// The piece as which a mixer or a feed-forward is recorded.
[[nodiscard]] inline Piece piece_of(const LayerHalf& half) {
    if (half.layer.mixer) return half.carries_state ? Piece::recurrent : Piece::attention;
    return half.mixture ? Piece::mixture : Piece::dense;
}

/// The part of the trace in which one piece ran; times as in AllocationRecord.
struct PieceRange {
    Piece piece = Piece::embedding;
    bool backward = false;
    std::int64_t layer = 0;  ///< layer of the traced model, or depth of multi-token prediction
    std::int64_t begin = 0, end = 0;
    PieceSteps steps;          ///< in order; those of mtp_front exclude its embedding
    std::int64_t to_host = 0;  ///< bytes that a forward of engine megatron offloads, not part of its steps
    [[nodiscard]] bool contains(std::int64_t when) const { return when >= begin && when < end; }
};

/// One microbatch forward and backward through one half of a layer, or through embedding and head.
struct PieceTrace {
    std::vector<model::AllocationRecord> tensors;
    std::vector<PieceRange> pieces;

    /// A piece's range, in the last layer that has it unless `layer` is given; asserts that it exists.
    [[nodiscard]] const PieceRange& range(Piece piece, bool backward, std::int64_t layer = -1) const;
    [[nodiscard]] PieceRange& range(Piece piece, bool backward, std::int64_t layer = -1);
};

/// Ranks of a ring that are traced if it has more and they divide it; the steps of all others are equal.
inline constexpr std::int64_t kRingParts = 4;
/// Traces one half of a layer (LayerKinds::mixers, feed_forwards). The model may have features that no device computes yet, as long as
/// they do not change a size. A feed-forward depends only on the number of rows, not on how sequences and cp divide them. `received`:
/// tokens that this rank's experts receive relative to the even split, at least 1; the number that each rank sends does not change.
[[nodiscard]] PieceTrace trace_half(const ModelSpec& model, const LayerHalf& half, const PieceSizes& sizes, double received = 1);
/// Traces embedding, norm and loss.
[[nodiscard]] PieceTrace trace_ends(const ModelSpec& model, const PieceSizes& sizes);
/// Maximum number of traced depths of multi-token prediction: the first, the last, and one that represents those between them.
inline constexpr std::int64_t kMostDepths = 3;
/// Traces norm, loss and multi-token prediction around layers of this mixer; the model must have multi-token prediction. `recomputed`:
/// under full, uniform recompute.
[[nodiscard]] PieceTrace trace_prediction(const ModelSpec& model, const LayerHalf& mixer, const PieceSizes& sizes, bool recomputed);
/// Extrapolates a trace linearly to `rows` rows (or sequences) from those with `rows_of_one` rows and twice that. Scratch with a size limit
/// may come out too large. If rows do not spread evenly over experts, the first experts of the model get one more copy from every source,
/// which is not included. Nothing if the traces differ in more than sizes.
[[nodiscard]] std::optional<PieceTrace> with_rows(const PieceTrace& one, const PieceTrace& two, std::int64_t rows,
                                                  std::int64_t rows_of_one = 1, bool with_steps = true);
/// A trace's tensors and ranges, without steps.
[[nodiscard]] PieceTrace without_steps(const PieceTrace& trace);

}  // namespace mgplan::simulator
