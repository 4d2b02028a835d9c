#include "simulator/collectives/all_gather.hpp"

#include <algorithm>

namespace mgplan::simulator {

double all_gather_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    const double n = static_cast<double>(path.ranks);
    // Ring: n-1 steps, each moves bytes/n through every link (nccl-tests doc/PERFORMANCE.md). Across nodes each node's
    // members drive one network adapter each, so the ring runs at the sum of their adapters, at most at NVLink speed.
    double bandwidth = path.inside;
    double steps = n - 1;
    if (path.crosses_network()) {
        bandwidth = std::min(path.inside, path.network * static_cast<double>(path.ranks_per_domain));
        steps = n / static_cast<double>(path.ranks_per_domain) - 1;
    }
    return calibration.collective_seconds + steps * path.latency + bytes * (n - 1) / n / bandwidth;
}

}  // namespace mgplan::simulator
