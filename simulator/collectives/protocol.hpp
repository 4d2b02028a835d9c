#pragma once
// Time of a collective's steps on the wire, under the faster of NCCL's protocols.

#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Seconds of steps with `latency` seconds in total that move `bytes` in total through a rank's link of `bandwidth` bytes/s. NCCL's LL and
/// LL128 protocols carry a flag with the data instead of waiting for a fence: they start sooner and reach part of the bandwidth; Simple
/// starts later and reaches all of it (NCCL, src/graph/tuning.cc). Returns the faster one, as NCCL chooses.
[[nodiscard]] double wire_seconds(double bytes, double latency, double bandwidth, const Calibration& calibration);

}  // namespace mgplan::simulator
