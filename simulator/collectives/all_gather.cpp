#include "simulator/collectives/all_gather.hpp"

#include "simulator/collectives/protocol.hpp"

namespace mgplan::simulator {

double all_gather_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    const double n = static_cast<double>(path.ranks);
    // Ring: n-1 steps, each moves bytes/n through every link (nccl-tests doc/PERFORMANCE.md).
    return wire_seconds(bytes * (n - 1) / n, path.ring_latency(1), path.ring_bandwidth(bytes), calibration);
}

}  // namespace mgplan::simulator
