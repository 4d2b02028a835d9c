#pragma once
// What the layers of a model allocate for one microbatch on one rank: recorded by running them on shapes.

#include <cstdint>
#include <vector>

#include "model/device/kernel_traits.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/layout.hpp"
#include "plan/model_spec.hpp"

namespace mgplan::simulator {

/// All that the allocations of a layer depend on. Layouts that agree in these have equal traces.
struct PieceSizes {
    std::int64_t tp = 1, cp = 1, ep = 1, etp = 1;
    std::int64_t micro_batch = 1;  ///< sequences
    std::int64_t sequence = 0;     ///< tokens
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    EnumSet<RecomputeModule> modules;  ///< of selective recompute
    Dtype dtype = Dtype::bf16;         ///< of parameters and activations
    Dtype grad_dtype = Dtype::fp32;
    model::KernelTraits traits;  ///< whose scratch is counted

    /// Rows inside a tensor-parallel region, and outside it.
    [[nodiscard]] std::int64_t rows() const { return micro_batch * sequence / cp; }
    [[nodiscard]] std::int64_t rows_outside() const { return sequence_parallel ? rows() / tp : rows(); }
};

/// The parts a model chunk is made of.
enum class Piece : std::uint8_t { embedding, dense, mixture, head };
inline constexpr int kPieces = 4;

/// A stretch of the trace in which one piece ran; times as in AllocationRecord.
struct PieceRange {
    Piece piece = Piece::embedding;
    bool backward = false;
    std::int64_t layer = 0;  ///< of the traced model: of each kind the second is one in the middle
    std::int64_t begin = 0, end = 0;
};

/// One microbatch forward and backward through embedding, two layers of each kind that the model has, and head.
struct PieceTrace {
    std::vector<model::AllocationRecord> tensors;
    std::vector<PieceRange> pieces;
    /// Sub-modules inside the pieces, as the layers name them.
    std::vector<model::RangeRecord> modules;

    /// The stretch of a piece whose input another one of its kind made (of layers: the second); it must exist (assertion).
    [[nodiscard]] const PieceRange& range(Piece piece, bool backward) const;
    [[nodiscard]] bool has(Piece piece) const;
};

/// Traces the model's layers. The model may have features that no device computes yet, as long as they do not change a size.
/// `full`: every layer is recomputed, two to a block, so that the trace holds layers that drop what they save.
[[nodiscard]] PieceTrace trace_pieces(const ModelSpec& model, const PieceSizes& sizes, bool full = false);

}  // namespace mgplan::simulator
