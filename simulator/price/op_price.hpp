#pragma once
// Seconds of one recorded op, by the kernel that runs it.

#include "model/device/device.hpp"
#include "simulator/piece/piece_step.hpp"
#include "simulator/price/training_rates.hpp"

namespace mgplan::simulator {

/// GEMMs and attention cost by their sizes; GEMMs that add into a gradient buffer cost as weight gradients, grouped GEMMs as grouped
/// kernels, those of a single group as plain GEMMs. All other ops cost by the bytes read and written, at the share of the memory bandwidth
/// that such kernels reach (permutations of rows, the loss over the vocabulary). Scans of chunks cost by these bytes or by their operations
/// at the rate of GEMMs, whichever takes longer; mgplan's own kernels by the sum of their passes, GEMMs and sequential loops (OwnKernels).
/// Attention without a fused kernel is two batched GEMMs and a softmax over all scores (backward: four GEMMs). Copies to the host and back
/// cost by its link and run on the same stream.
[[nodiscard]] double op_seconds(const model::OpRecord& record, const OpRates& rates);

/// Seconds of a step that is an op: op_seconds(), adjusted by engine policies. Attention over fp8 copies has its own rate. As calibrated,
/// an amax takes no pass of its own if the preceding kernel computes it ("find_largest_produced"), nor does a second cast if one kernel
/// casts both ways ("quantise_again").
[[nodiscard]] double step_seconds(const PieceStep& step, const OpRates& rates);

/// True for casts to fp8 and narrower types and back, and for the search for their scales.
[[nodiscard]] bool quantises(const model::OpRecord& record);
[[nodiscard]] bool is_copy_to_or_from_host(const model::OpRecord& record);

/// Number of kernels that an eager framework launches for an op, each with its module's overhead; the host's part of a pass is proportional
/// to it. Kernels that quantise belong to the GEMM's module.
[[nodiscard]] int op_kernels(const model::OpRecord& record);
/// Number of kernels that the host launches for a step: op_kernels(), and further launches, kLaunchesOfAKernel of which take the host as
/// long as one kernel with its module. Engine mgplan: its own number of launches (OpRecord::launches), collectives included; a send and its
/// receive count as one.
inline constexpr std::int64_t kLaunchesOfAKernel = 20;  ///< 60 to 111 us, divided by the 3 to 6 us of a launch from C++
[[nodiscard]] int step_kernels(const PieceStep& step, Engine engine);

}  // namespace mgplan::simulator
