#include "simulator/collectives/all_reduce.hpp"

#include <algorithm>

namespace mgplan::simulator {

double all_reduce_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    const double n = static_cast<double>(path.ranks);
    // Ring: reduce-scatter then all-gather, 2(n-1) steps of bytes/n (nccl-tests doc/PERFORMANCE.md).
    double bandwidth = path.inside;
    double steps = 2 * (n - 1);
    if (path.crosses_network()) {
        bandwidth = std::min(path.inside, path.network * static_cast<double>(path.ranks_per_domain));
        steps = 2 * (n / static_cast<double>(path.ranks_per_domain) - 1);
    } else if (calibration.nvls_efficiency > calibration.nvlink_efficiency && n > 4) {
        // Reduction inside the NVLink switch; measured to pay from five ranks on (ml-engineering, H200 and B200 by GPU count).
        bandwidth = path.inside * calibration.nvls_efficiency / calibration.nvlink_efficiency;
        steps = 2;
    }
    return calibration.collective_seconds + steps * path.latency + 2 * bytes * (n - 1) / n / bandwidth;
}

}  // namespace mgplan::simulator
