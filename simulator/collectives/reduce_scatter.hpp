#pragma once
// Reduce-scatter of one array: every rank ends with the sum of its part.

#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Seconds; `bytes` is the whole input array of each rank. Zero for a group of one.
[[nodiscard]] double reduce_scatter_seconds(double bytes, const GroupPath& path, const Calibration& calibration);

}  // namespace mgplan::simulator
