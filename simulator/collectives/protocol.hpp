#pragma once
// What a collective's steps cost on the wire, under the faster of NCCL's protocols.

#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Steps of `latency` seconds in all that move `bytes` through a rank's link of `bandwidth` bytes/s in all. NCCL's LL and
/// LL128 protocols carry a flag with the data instead of waiting for a fence: they start sooner and reach a part of the
/// bandwidth; Simple starts later and reaches all of it (NCCL, src/graph/tuning.cc). The faster one is taken, as NCCL does.
[[nodiscard]] double wire_seconds(double bytes, double latency, double bandwidth, const Calibration& calibration);

}  // namespace mgplan::simulator
