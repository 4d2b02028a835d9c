#pragma once
// Steps of a piece of a model in one pass on one shard, in order: ops, and the starts and waits of collectives. Recorded by running model/
// on shapes; used for time (simulator/price) and for FLOPs.

#include <cstdint>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"

namespace mgplan::simulator {

/// Purpose of a step. Weight gradients are GEMMs that add into a gradient buffer; everything else in a backward, except recomputed
/// forwards, counts as gradient of inputs.
enum class StepPass : std::uint8_t { forward, recompute, input_gradient, weight_gradient };
inline constexpr int kStepPasses = 4;

/// The rank group of a layer that communicates.
enum class LayerGroup : std::uint8_t { tp, cp, ep, etp, tp_cp };
inline constexpr int kLayerGroups = 5;

enum class StepKind : std::uint8_t { op, start, wait };

/// One step of the rank's compute stream.
struct PieceStep {
    StepKind kind = StepKind::op;
    StepPass pass = StepPass::forward;
    bool router = false;       ///< part of choosing experts
    bool gate = false;         ///< part of the gate of shared experts
    bool unquantised = false;  ///< a GEMM that stays in the storage type while a recipe quantises others
    bool in_fp8 = false;       ///< fused attention over fp8 copies of its operands
    model::OpRecord op{};      ///< for an op: kind, sizes, types, bytes read and written, FLOPs
    /// Further kernels that the host launches for an op, not counted by op_kernels(); each takes the host far less than an eager module.
    std::int64_t launches = 0;

    // Fields of a start; a wait uses only group, number and share.
    LayerGroup group = LayerGroup::tp;
    int number = 0;  ///< number of the collective in its trace; sends and receives that start together share it
    model::CollectiveKind collective = model::CollectiveKind::all_reduce;
    std::int64_t sent = 0, received = 0;  ///< payload bytes as counted by CollectiveRecord; of all-to-all and messages each way

    /// Multiprocessors that the kernel of a start occupies while it runs; negative: unknown.
    std::int64_t multiprocessors = -1;
    double share = 1;  ///< for a wait: share of the collective that must be complete
    /// For an all-to-all that sends a token once to each destination with any of its experts: number of copies as which its payload counts
    /// a token; 0: each copy is sent separately.
    std::int64_t copies = 0;

    [[nodiscard]] static PieceStep wait_for(const PieceStep& start) {
        PieceStep step;
        step.kind = StepKind::wait;
        step.pass = start.pass;
        step.router = start.router;
        step.gate = start.gate;
        step.group = start.group;
        step.number = start.number;
        return step;
    }
};

using PieceSteps = std::vector<PieceStep>;

/// Share of a token's copies with different destinations out of `places`, each drawn independently: k draws hit n (1 - (1 - 1/n)^k) of n
/// destinations.
[[nodiscard]] double share_of_different(std::int64_t copies, double places);

/// Extrapolates a size linearly from rows_of_one rows (`one`) and twice that (`two`) to `rows` rows. Works in two steps, because rows ·
/// bytes may exceed 64 bits.
void grow_size(std::int64_t& one, std::int64_t two, std::int64_t rows, std::int64_t rows_of_one);
/// Extrapolates all sizes of a step linearly from rows_of_one rows (`one`) and twice that (`two`) to `rows` rows. Returns false if the
/// steps differ in more than sizes.
[[nodiscard]] bool grow_step(PieceStep& one, const PieceStep& two, std::int64_t rows, std::int64_t rows_of_one);
/// Extrapolates all steps of a pass with grow_step().
[[nodiscard]] bool grow_steps(PieceSteps& one, const PieceSteps& two, std::int64_t rows, std::int64_t rows_of_one);

}  // namespace mgplan::simulator
