#include "simulator/collectives/reduce_scatter.hpp"

#include "simulator/collectives/protocol.hpp"

namespace mgplan::simulator {

double reduce_scatter_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    const double n = static_cast<double>(path.ranks);
    // The all-gather's ring in reverse: n-1 steps of bytes/n (nccl-tests doc/PERFORMANCE.md). The additions cost nothing extra: XLA's
    // tables show both within a tenth of each other.
    return wire_seconds(bytes * (n - 1) / n, path.ring_latency(1), path.ring_bandwidth(bytes), calibration);
}

}  // namespace mgplan::simulator
