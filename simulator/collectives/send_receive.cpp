#include "simulator/collectives/send_receive.hpp"

namespace mgplan::simulator {

double send_receive_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    // Some neighbours share a domain; the slowest pair sets the pace. The fixed cost is halved: one kernel without a ring to start.
    return calibration.collective_seconds / 2 + path.latency + bytes / (path.crosses_network() ? path.network : path.inside);
}

}  // namespace mgplan::simulator
