#pragma once
// What the layers of a model do for one microbatch on one rank, recorded by running them on shapes: what they allocate, compute and
// communicate. Memory, time and model FLOPs are read from it.

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

/// All that a layer's record depends on.
struct PieceSizes : ShardKey {
    std::int64_t sequence = 0;  ///< tokens
    Dtype dtype = Dtype::bf16;  ///< of parameters and activations
    Dtype grad_dtype = Dtype::fp32;
    model::KernelTraits traits;        ///< whose scratch is counted
    bool keep_steps = false;           ///< what is done is recorded too, not tensors alone: twice the work
    bool whole_ring = false;           ///< each rank of a ring has its step; else four stand for more of them
    EnumSet<OffloadModule> offloaded;  ///< modules whose inputs wait on the host
    bool fuses_windows = false;        ///< sliding windows need no other kernels than the whole sequence: no other scratch

    /// Rows inside a tensor-parallel region, and outside it.
    [[nodiscard]] std::int64_t rows() const { return micro_batch * sequence / cp; }
    [[nodiscard]] std::int64_t rows_outside() const { return sequence_parallel ? rows() / tp : rows(); }
};

/// The parts a model chunk is made of. A decoder layer is a mixer of tokens, attention or one that carries a state along the sequence
/// (recurrent), and a feed-forward, dense or a mixture; either may be missing. The head is a
/// norm and the loss, output layer included. One depth of multi-token prediction (model/layers/mtp.hpp) is a front up to its
/// projection, with an embedding in it; a decoder layer; an end with a norm (in the backward all that is in front of the layer's,
/// the front once more where it is recomputed); a loss; and a rest (forward: behind the loss; backward: between the layer's
/// recompute and its backward).
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

/// The piece that a mixer is recorded as.
[[nodiscard]] inline Piece piece_of_mixer(const LayerHalf& mixer) {
    return mixer.carries_state ? Piece::recurrent : Piece::attention;
}

/// The part of the trace in which one piece ran; times as in AllocationRecord.
struct PieceRange {
    Piece piece = Piece::embedding;
    bool backward = false;
    std::int64_t layer = 0;  ///< of the traced model; of multi-token prediction its depth
    std::int64_t begin = 0, end = 0;
    PieceSteps steps;          ///< what was done meanwhile, in order; of mtp_front without its embedding
    std::int64_t to_host = 0;  ///< bytes that a forward of engine megatron leaves on the host, beside its steps
    [[nodiscard]] bool contains(std::int64_t when) const { return when >= begin && when < end; }
};

/// One microbatch forward and backward through a layer between embedding and head.
struct PieceTrace {
    std::vector<model::AllocationRecord> tensors;
    std::vector<PieceRange> pieces;

    /// A piece's range, in the last layer that has it unless `layer` is given; it must exist (assertion).
    [[nodiscard]] const PieceRange& range(Piece piece, bool backward, std::int64_t layer = -1) const;
    [[nodiscard]] PieceRange& range(Piece piece, bool backward, std::int64_t layer = -1);
    [[nodiscard]] bool holds(Piece piece) const;
};

/// Ranks of a ring that are traced where there are more, if they divide them; all others of its steps are like theirs.
inline constexpr std::int64_t kRingParts = 4;
/// Traces embedding, mixer, dense MLP and head: everything but mixtures. The model may have features that no device
/// computes yet, as long as they do not change a size. A model with compositions has its first layer traced, which has no mixture.
[[nodiscard]] PieceTrace trace_dense_pieces(const ModelSpec& model, const PieceSizes& sizes);
/// Depths of multi-token prediction that are traced at most: the first, the last, and one that stands for those between them.
inline constexpr std::int64_t kMostDepths = 3;
/// Traces norm, loss and multi-token prediction around its layers, which are the decoder's; the model must predict so.
/// `recomputed`: under full, uniform recompute.
[[nodiscard]] PieceTrace trace_prediction(const ModelSpec& model, const PieceSizes& sizes, bool recomputed);
/// The trace of so many rows (or sequences) from those of `rows_of_one` and of twice as many: rows, and with them all tensors,
/// grow by as much with each. Scratch that is cut to a largest size may come out too large. Where rows do not spread evenly over
/// experts, the first experts of the model get one copy more from every source, which is not in it. Nothing if the traces differ in more
/// than sizes.
[[nodiscard]] std::optional<PieceTrace> with_rows(const PieceTrace& one, const PieceTrace& two, std::int64_t rows,
                                                  std::int64_t rows_of_one = 1, bool with_steps = true);
/// A trace's tensors and where its pieces ran.
[[nodiscard]] PieceTrace without_steps(const PieceTrace& trace);
/// Traces mixtures; the model must have some, one with compositions in its first layer. Only the rows among the sizes matter, not how
/// sequences and cp make them. `received`: rows that this rank's experts receive over those of the even split, at least 1; every rank sends
/// as many as ever.
[[nodiscard]] PieceTrace trace_mixture(const ModelSpec& model, const PieceSizes& sizes, double received = 1);

}  // namespace mgplan::simulator
