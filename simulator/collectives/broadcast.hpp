#pragma once
// Broadcast of one array from one rank to all others.

#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Seconds; `bytes` is the array. Zero for a group of one.
[[nodiscard]] double broadcast_seconds(double bytes, const GroupPath& path, const Calibration& calibration);

}  // namespace mgplan::simulator
