#include "simulator/collectives/broadcast.hpp"

#include "simulator/collectives/protocol.hpp"

namespace mgplan::simulator {

double broadcast_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    // A pipelined ring: every link carries the whole array once, and the last rank is n-1 hops behind the first
    // (nccl-tests doc/PERFORMANCE.md: bus bandwidth factor 1).
    return wire_seconds(bytes, path.ring_steps(), path.ring_bandwidth(), path.latency, calibration);
}

}  // namespace mgplan::simulator
