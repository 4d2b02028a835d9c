#pragma once
// Seconds of one recorded op, by the kernel that runs it.

#include "model/device/device.hpp"
#include "simulator/piece/piece_step.hpp"
#include "simulator/price/training_rates.hpp"

namespace mgplan::simulator {

/// Products and attention by their sizes; what adds into a gradient buffer as a weight gradient; grouped products as grouped kernels, of a
/// single group as a plain product; all else by the bytes read and written, at the share of the memory bandwidth that such kernels reach
/// (permutations of rows, the loss over the vocabulary); scans of chunks by those or by their operations at the rate of products, whichever
/// takes longer; what mgplan's own kernels do step by step, by all of its passes, products and walks (OwnKernels). Attention that no
/// library fuses is two batched products and a softmax over all scores (its backward four products). Copies to the host and back by its
/// link, on the stream of all else.
[[nodiscard]] double op_seconds(const model::OpRecord& record, const OpRates& rates);

/// Seconds of a step that is an op: op_seconds(), and what a policy of the engine says beside it. Attention over fp8 copies has its own
/// rate. A tensor's largest value takes no pass of its own where the kernel in front finds it ("find_largest_produced"), nor does a second
/// cast where one kernel casts both ways ("quantise_again"), as the calibration says.
[[nodiscard]] double step_seconds(const PieceStep& step, const OpRates& rates);

/// Kernels that an eager framework issues for an op, each with the module around it; what issuing them takes is the host's part of a pass.
/// Kernels that quantise belong to the product's module.
[[nodiscard]] int op_kernels(const model::OpRecord& record);
/// The same of a step, with its launches: so many of these take the host as long as one kernel with its module. Of engine mgplan what it
/// launches itself (OpRecord::launches), a collective included; sends start together with what is received.
inline constexpr std::int64_t kLaunchesOfAKernel = 20;  ///< 60 to 111 us over the 3 to 6 of a launch from C++
[[nodiscard]] int step_kernels(const PieceStep& step, Engine engine);

}  // namespace mgplan::simulator
