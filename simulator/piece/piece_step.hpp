#pragma once
// What a piece of a model does in one pass on one shard, in order: ops, and the starts and waits of collectives. Recorded by running
// model/ on shapes; read for time (simulator/price) and for FLOPs.

#include <cstdint>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"

namespace mgplan::simulator {

/// What a step is done for. Gradients of weights are products that add into a gradient buffer; all else of a backward that does not run
/// a forward again counts as gradient of inputs.
enum class StepPass : std::uint8_t { forward, recompute, input_gradient, weight_gradient };
inline constexpr int kStepPasses = 4;

/// The rank group of a layer that communicates.
enum class LayerGroup : std::uint8_t { tp, cp, ep, etp, tp_cp };
inline constexpr int kLayerGroups = 5;

enum class StepKind : std::uint8_t { op, start, wait };

/// One step of the rank's computing stream.
struct PieceStep {
    StepKind kind = StepKind::op;
    StepPass pass = StepPass::forward;
    bool router = false;       ///< part of choosing experts
    bool gate = false;         ///< part of weighing shared experts
    bool unquantised = false;  ///< a product that stays in the storage type where a recipe quantises others
    bool in_fp8 = false;       ///< of fused attention: over fp8 copies of its operands
    model::OpRecord op{};      ///< of an op: kind, sizes, types, bytes read and written, FLOPs
    /// Single kernels that the host launches for an op beside those of op_kernels(); each takes it far less than an eager module does.
    std::int64_t launches = 0;

    // What follows belongs to a start; a wait has group, number and share alone.
    LayerGroup group = LayerGroup::tp;
    int number = 0;  ///< of the collective within its trace; sends and receives that start together have one number
    model::CollectiveKind collective = model::CollectiveKind::all_reduce;
    std::int64_t sent = 0, received = 0;  ///< payload bytes as CollectiveRecord counts them; of all-to-all and messages each way

    /// Multiprocessors that the kernel of a start holds while it runs; negative where that is not known.
    std::int64_t multiprocessors = -1;
    double share = 1;  ///< of a wait: the part of the collective that must have passed
    /// For an all-to-all in which a token goes once to each place that has any of its experts: the copies into which its payload counts a
    /// token; 0: each copy goes for itself.
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

/// The share of a token's copies that go to different ones of `places`, where each copy's place is drawn for itself: n places are
/// hit by k draws n (1 - (1 - 1/n)^k) times.
[[nodiscard]] double share_of_different(std::int64_t copies, double places);

/// Makes of a size of rows_of_one rows that of `rows` rows, `two` being of twice as many: it grows by as much with each row. In two steps,
/// for rows · bytes may leave 64 bits.
void grow_size(std::int64_t& one, std::int64_t two, std::int64_t rows, std::int64_t rows_of_one);
/// Makes a step one of `rows` rows: `one` has rows_of_one rows and `two` twice as many, and all sizes grow by as much with each
/// row. false where the two differ in more than sizes.
[[nodiscard]] bool grow_step(PieceStep& one, const PieceStep& two, std::int64_t rows, std::int64_t rows_of_one);
/// The same of all steps of a pass.
[[nodiscard]] bool grow_steps(PieceSteps& one, const PieceSteps& two, std::int64_t rows, std::int64_t rows_of_one);

}  // namespace mgplan::simulator
