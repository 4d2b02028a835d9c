#include "simulator/collectives/send_receive.hpp"

namespace mgplan::simulator {

double send_receive_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    // Neighbours two strides apart may still share a domain; the pair that does not sets the pace.
    return calibration.collective_seconds / 2 + path.latency + bytes / (path.crosses_network() ? path.network : path.inside);
}

}  // namespace mgplan::simulator
