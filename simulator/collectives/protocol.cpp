#include "simulator/collectives/protocol.hpp"

#include <algorithm>

namespace mgplan::simulator {

double wire_seconds(double bytes, double latency, double bandwidth, const Calibration& calibration) {
    const double simple = calibration.collective_seconds + latency + bytes / bandwidth;
    if (calibration.low_latency_bandwidth <= 0) return simple;
    return std::min(simple, calibration.low_latency_seconds + latency + bytes / (bandwidth * calibration.low_latency_bandwidth));
}

}  // namespace mgplan::simulator
