#pragma once
// Collectives as flows in SimGrid (simgrid.org, Casanova et al., 2014): an oracle that shares bandwidth by max-min fairness and
// knows nothing of the formulas in simulator/collectives/.

#include <cstdint>
#include <vector>

namespace mgplan::simulator {

/// GPUs with a port to their node's NVLink switch and network adapters; every switch and the fabric between nodes never block.
struct FlowPlatform {
    int nodes = 1;
    int gpus_per_node = 8;
    int nics_per_node = 8;  ///< divides gpus_per_node; neighbouring GPUs share one
    double nvlink = 0;      ///< bytes/s per GPU and direction
    double network = 0;     ///< bytes/s per GPU and direction if all GPUs of a node send: an adapter has that of all its GPUs
    double nvlink_latency = 0;
    double network_latency = 0;
};

/// GPUs of one group, node by node; each node that takes part has equally many.
using FlowGroup = std::vector<int>;

enum class FlowPattern : std::uint8_t {
    ring_once,   ///< n - 1 steps of a ring: an all-gather, or a reduce-scatter whose additions cost nothing
    ring_twice,  ///< 2·(n - 1) steps: an all-reduce
    exchange,    ///< every member sends its n-th part to every other at once: an all-to-all
    shift,       ///< every member sends all to the one behind it, the last to none
};

/// Seconds until all groups, which start at the same time, are done with `bytes` each (as simulator/collectives/ count them).
/// Members of a node each drive a ring of their own for their share of the bytes, which leaves the node by their adapter; a part of
/// the array is sent on as soon as it has arrived. Runs in a process of its own, since SimGrid has one platform a process; throws
/// std::runtime_error where that fails.
[[nodiscard]] double flow_seconds(const FlowPlatform& platform, const std::vector<FlowGroup>& groups, FlowPattern pattern, double bytes);

}  // namespace mgplan::simulator
