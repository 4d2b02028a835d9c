#include "simulator/collectives/all_to_all.hpp"

#include <algorithm>

namespace mgplan::simulator {

double all_to_all_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    const double n = static_cast<double>(path.ranks);
    const double near = static_cast<double>(path.ranks_per_domain);
    // Direct sends: (near-1)/n of the array stays inside the domain, (n-near)/n leaves through the rank's own adapter;
    // both go on at the same time.
    const double inside = bytes * (near - 1) / n / (path.inside * calibration.all_to_all_efficiency / calibration.nvlink_efficiency);
    const double outside = bytes * (n - near) / n / path.network;
    return calibration.collective_seconds + path.latency + std::max(inside, outside);
}

}  // namespace mgplan::simulator
