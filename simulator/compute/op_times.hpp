#pragma once
// Seconds of one recorded op, for whoever compares a trace with a measurement op by op.

#include "model/device/device.hpp"
#include "simulator/compute/kernels.hpp"

namespace mgplan::simulator {

/// Of a kernel on the device, by the same forms as the layers' costs: products by their sizes, attention by its FLOPs, all else by
/// the bytes it reads and writes. Grouped products, whose record has no sizes, count as one cube of as many FLOPs.
[[nodiscard]] double op_seconds(const model::OpRecord& record, const KernelTimes& times);

}  // namespace mgplan::simulator
