#pragma once
// What the layers of a model allocate for one microbatch on one rank: recorded by running them on shapes.

#include <cstdint>
#include <optional>
#include <vector>

#include "model/device/kernel_traits.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/layout.hpp"
#include "plan/model_spec.hpp"

namespace mgplan::simulator {

/// All that the allocations of a layer depend on.
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
    bool fuses_windows = false;  ///< sliding windows need no other kernels than the whole sequence: no other scratch

    /// Rows inside a tensor-parallel region, and outside it.
    [[nodiscard]] std::int64_t rows() const { return micro_batch * sequence / cp; }
    [[nodiscard]] std::int64_t rows_outside() const { return sequence_parallel ? rows() / tp : rows(); }
};

/// The parts a model chunk is made of. A decoder layer is an attention half and an MLP half, dense or a mixture.
enum class Piece : std::uint8_t { embedding, attention, dense, mixture, head };
inline constexpr int kPieces = 5;

/// A stretch of the trace in which one piece ran; times as in AllocationRecord.
struct PieceRange {
    Piece piece = Piece::embedding;
    bool backward = false;
    std::int64_t layer = 0;  ///< of the traced model
    std::int64_t begin = 0, end = 0;
};

/// One microbatch forward and backward through a layer between embedding and head.
struct PieceTrace {
    std::vector<model::AllocationRecord> tensors;
    std::vector<PieceRange> pieces;

    /// A piece's stretch; it must exist (assertion).
    [[nodiscard]] const PieceRange& range(Piece piece, bool backward) const;
};

/// Traces embedding, attention, dense MLP and head: everything but mixtures. The model may have features that no device
/// computes yet, as long as they do not change a size.
[[nodiscard]] PieceTrace trace_dense_pieces(const ModelSpec& model, const PieceSizes& sizes);
/// The trace of so many rows (or sequences) from those of `rows_of_one` and of twice as many: rows, and with them all tensors,
/// grow by as much with each. Scratch that is cut to a largest size may come out too large. Where rows do not spread evenly over
/// experts, the first experts of the model get one copy more from every source, which is not in it. Nothing if the traces differ in more
/// than sizes.
[[nodiscard]] std::optional<PieceTrace> with_rows(const PieceTrace& one, const PieceTrace& two, std::int64_t rows,
                                                  std::int64_t rows_of_one = 1);
/// Traces mixtures; the model must have some. Of the sizes only the rows matter, not how sequences and cp make them.
/// `received`: rows that this rank's experts receive over those of the even split, at least 1; every rank sends as many as ever.
[[nodiscard]] PieceTrace trace_mixture(const ModelSpec& model, const PieceSizes& sizes, double received = 1);

}  // namespace mgplan::simulator
