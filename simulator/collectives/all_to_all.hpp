#pragma once
// All-to-all: every rank sends a part of its array to every other.

#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Seconds; `bytes` is the data that one rank sends, including its own part. Zero for a group of one. With uneven parts (all-to-all-v) the
/// fullest rank sets the pace: pass its bytes, the larger of sent and received.
[[nodiscard]] double all_to_all_seconds(double bytes, const GroupPath& path, const Calibration& calibration);

}  // namespace mgplan::simulator
