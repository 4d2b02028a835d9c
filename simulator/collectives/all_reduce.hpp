#pragma once
// All-reduce of one array.

#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Seconds; `bytes` is the array. Zero for a group of one.
[[nodiscard]] double all_reduce_seconds(double bytes, const GroupPath& path, const Calibration& calibration);

}  // namespace mgplan::simulator
