#pragma once
// Which links a rank group uses, from the strides of its axes in the rank grid.

#include <algorithm>
#include <cstdint>
#include <span>

#include "plan/cluster_spec.hpp"
#include "plan/rank_groups.hpp"
#include "simulator/calibration.hpp"

namespace mgplan::simulator {

/// The way a group's traffic takes. All groups of one kind communicate at the same time, so a node's network is shared:
/// each rank has its own share of it and no more.
struct GroupPath {
    std::int64_t ranks = 1;
    std::int64_t ranks_per_domain = 1;  ///< members that reach each other inside one NVLink domain (or node)
    double inside = 0;                  ///< bytes/s per rank inside the domain
    double network = 0;                 ///< bytes/s per rank between domains
    double latency = 0;                 ///< seconds per step of the slowest link used
    double in_switch = 0;               ///< bytes/s of an array that the NVLink switch itself reduces; 0: it does not
    [[nodiscard]] bool crosses_network() const { return ranks > ranks_per_domain; }
    [[nodiscard]] bool single() const { return ranks <= 1; }
    /// Hops of a ring that count: between domains where there are several, for a network's latency hides NVLink's.
    [[nodiscard]] double ring_steps() const {
        return static_cast<double>(ranks) / (crosses_network() ? static_cast<double>(ranks_per_domain) : 1.0) - 1;
    }
    /// Bytes/s of a ring. Across domains each member inside one drives a ring through its own adapter, so they run at the sum
    /// of their adapters, at most at NVLink speed.
    [[nodiscard]] double ring_bandwidth() const {
        return crosses_network() ? std::min(inside, network * static_cast<double>(ranks_per_domain)) : inside;
    }
};

/// Path of the groups spanned by `axes` (sizes and strides of one grid).
[[nodiscard]] GroupPath group_path(std::span<const GridAxis> axes, const ClusterSpec& cluster, const Calibration& calibration);

}  // namespace mgplan::simulator
