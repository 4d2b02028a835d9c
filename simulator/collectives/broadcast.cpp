#include "simulator/collectives/broadcast.hpp"

#include "simulator/collectives/protocol.hpp"

namespace mgplan::simulator {

double broadcast_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    // A pipelined ring: every link carries the whole array once, and the last rank is n-1 hops behind the first
    // (nccl-tests doc/PERFORMANCE.md: bus bandwidth factor 1).
    const double steps = static_cast<double>(path.ranks - 1), far = path.crosses_network() ? path.domains() - 1 : steps;
    return wire_seconds(bytes, far * path.latency + (steps - far) * path.latency_inside, path.ring_bandwidth(bytes), calibration);
}

}  // namespace mgplan::simulator
