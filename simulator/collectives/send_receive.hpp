#pragma once
// One point-to-point transfer between adjacent pipeline stages.

#include "simulator/network/group_path.hpp"

namespace mgplan::simulator {

/// Seconds; `bytes` is the message. Zero for a group of one.
[[nodiscard]] double send_receive_seconds(double bytes, const GroupPath& path, const Calibration& calibration);

}  // namespace mgplan::simulator
