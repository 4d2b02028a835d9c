#pragma once
// Seconds of one recorded op, for comparing a trace with a measurement op by op (`mgplan verify`).

#include "model/device/device.hpp"
#include "simulator/compute/kernels.hpp"

namespace mgplan::simulator {

/// Seconds of one kernel: products by their sizes, attention by its FLOPs, sequence and head size, all else by the bytes read and
/// written. A grouped product counts as one cube of as many FLOPs. Predictions of layouts do not use this: simulator/layers prices
/// weight gradients, grouped products, permutations, softmax and loss by forms of their own.
[[nodiscard]] double op_seconds(const model::OpRecord& record, const KernelTimes& times);

}  // namespace mgplan::simulator
