#include "simulator/collectives/all_reduce.hpp"

#include <algorithm>
#include <cmath>

#include "simulator/collectives/protocol.hpp"

namespace mgplan::simulator {

double all_reduce_seconds(double bytes, const GroupPath& path, const Calibration& calibration) {
    if (path.single()) return 0;
    const double n = static_cast<double>(path.ranks);
    // Ring: reduce-scatter then all-gather, 2(n-1) steps of bytes/n (nccl-tests doc/PERFORMANCE.md).
    double seconds = wire_seconds(2 * bytes * (n - 1) / n, path.ring_latency(2), path.ring_bandwidth(bytes), calibration);
    if (path.in_switch > 0) {
        // NVLS: each rank sends its array into the switch once and receives the sum once, whatever the number of ranks.
        seconds = std::min(seconds, calibration.nvls_seconds + 2 * path.latency + bytes / (path.in_switch * path.reached(bytes)));
    }
    if (path.crosses_network()) {
        // Two trees over the domains, each for half of the array (Sanders et al., 2009; NCCL 2.4): every rank still sends
        // and receives it twice, up and down, in steps that grow with the logarithm; the members inside a domain are a chain
        // (NCCL, src/graph/tuning.cc: 2·((ranks/nodes - 1)·intra + log2(nodes)·inter)).
        const double chain = static_cast<double>(path.ranks_per_domain - 1) * path.latency_inside;
        const double climb = std::ceil(std::log2(path.domains())) * path.latency;
        seconds = std::min(seconds, wire_seconds(2 * bytes, 2 * (chain + climb), path.ring_bandwidth(bytes), calibration));
    }
    return seconds;
}

}  // namespace mgplan::simulator
