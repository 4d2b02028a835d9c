#include "simulator/collectives/all_to_all.hpp"

#include <algorithm>

#include "simulator/collectives/protocol.hpp"

namespace mgplan::simulator {

double all_to_all_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    const double n = static_cast<double>(path.ranks);
    const double near = static_cast<double>(path.ranks_per_domain);
    // Direct sends: (near-1)/n of the array stays inside the domain, (n-near)/n leaves through the rank's own adapter; both run at the same
    // time.
    const double inside = path.inside * path.reached(bytes) * calibration.all_to_all_efficiency / calibration.nvlink_efficiency;
    const double stays = wire_seconds(bytes * (near - 1) / n, path.latency, inside, calibration);
    if (!path.crosses_network()) return stays;
    return std::max(stays, wire_seconds(bytes * (n - near) / n, path.latency, path.network_of_messages(bytes / n), calibration));
}

}  // namespace mgplan::simulator
