#pragma once
// All-to-all: every rank sends an equal part of its array to every other.

#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Seconds; `bytes` is what one rank sends, its own part included. Zero for a group of one.
[[nodiscard]] double all_to_all_seconds(double bytes, const GroupPath& path, const Calibration& calibration);

}  // namespace mgplan::simulator
