#pragma once
// All-gather of one array: every rank ends with all of it.

#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Seconds; `bytes` is the whole array. Zero for a group of one.
[[nodiscard]] double all_gather_seconds(double bytes, const GroupPath& path, const Calibration& calibration);

}  // namespace mgplan::simulator
