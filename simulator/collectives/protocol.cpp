#include "simulator/collectives/protocol.hpp"

#include <algorithm>

namespace mgplan::simulator {

double wire_seconds(double bytes, double steps, double bandwidth, double latency, const Calibration& calibration) {
    const double hops = steps * latency;
    const double simple = calibration.collective_seconds + hops + bytes / bandwidth;
    if (calibration.low_latency_bandwidth <= 0) return simple;
    return std::min(simple, calibration.low_latency_seconds + hops + bytes / (bandwidth * calibration.low_latency_bandwidth));
}

}  // namespace mgplan::simulator
