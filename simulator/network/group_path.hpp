#pragma once
// Which links a rank group uses, from the strides of its axes in the rank grid.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/layout/rank_groups.hpp"
#include "simulator/compute/calibration.hpp"

namespace mgplan::simulator {

/// Arrays of this size and more move at NVLink's full bandwidth.
inline constexpr double kFullBandwidthBytes = 1024.0 * 1024 * 1024;

/// The way a group's traffic takes. All groups of one kind communicate at the same time, so a node's network is shared:
/// each rank has its own share of it and no more.
struct GroupPath {
    std::int64_t ranks = 1;
    std::int64_t ranks_per_domain = 1;  ///< members that reach each other inside one NVLink domain (or node)
    double inside = 0;                  ///< bytes/s per rank inside the domain
    double network = 0;                 ///< bytes/s per rank between domains
    double latency = 0;                 ///< seconds per step of the slowest link used
    double in_switch = 0;               ///< bytes/s of an array that the NVLink switch itself reduces; 0: it does not
    double latency_inside = 0;          ///< seconds per step inside a domain, where the group has several
    bool one_port = false;              ///< the way to the network leads through the link that joins the domain (PCIe)
    double growth = 0;                  ///< power of the bytes with which `inside` grows; 0: it does not
    [[nodiscard]] bool crosses_network() const { return ranks > ranks_per_domain; }
    [[nodiscard]] bool single() const { return ranks <= 1; }
    [[nodiscard]] double domains() const { return static_cast<double>(ranks) / static_cast<double>(ranks_per_domain); }

    /// Seconds of latency in a ring that a part of the array goes round `rounds` times but for the last step of each: 1 gathers
    /// or scatters, 2 does both (all-reduce). A ring passes each domain once, so that a round has as many steps through the
    /// network as there are domains; the steps that the slowest part is spared lie inside a domain where that has any
    /// (tests/simulator/flow_oracle_test.cpp). NCCL counts steps of both kinds too (src/graph/tuning.cc, ncclTopoGetAlgoTime).
    [[nodiscard]] double ring_latency(double rounds) const {
        const double steps = rounds * static_cast<double>(ranks - 1);
        if (!crosses_network()) return steps * latency;
        const double far = rounds * domains() - std::max(0.0, rounds - static_cast<double>(ranks_per_domain - 1));
        return far * latency + (steps - far) * latency_inside;
    }
    /// Share of `inside` that a collective over an array of `bytes` reaches. In the tables of nccl-tests, Galvatron and XLA NVLink's
    /// bandwidth grows with a small power of the bytes up to about a gigabyte (tests/simulator/collective_curves_test.cpp).
    [[nodiscard]] double reached(double bytes) const {
        return growth > 0 && bytes > 0 && bytes < kFullBandwidthBytes ? std::pow(bytes / kFullBandwidthBytes, growth) : 1;
    }
    /// Bytes/s of a ring over an array of `bytes`. No table by size is at hand for rings across domains: they have one bandwidth. There
    /// each member inside one drives a ring through its own adapter, so they run at the sum of their adapters. All of these rings pass
    /// through every member: one leaves it by its adapter, the others by NVLink, which thus carries the less the fewer they are. PCIe
    /// carries all of them.
    [[nodiscard]] double ring_bandwidth(double bytes) const {
        if (!crosses_network()) return inside * reached(bytes);
        const double rings = static_cast<double>(ranks_per_domain), adapters = network * rings;
        if (one_port) return std::min(inside, adapters);
        return ranks_per_domain == 1 ? network : std::min(inside * rings / (rings - 1), adapters);
    }
};

/// Path of the groups spanned by `axes` (sizes and strides of one grid), of a job on `world` ranks: that decides how many GPUs of each
/// NVLink domain it takes (plan/cluster/nvlink_domains.hpp). 0: as many as there are.
[[nodiscard]] GroupPath group_path(std::span<const GridAxis> axes, const ClusterSpec& cluster, const Calibration& calibration,
                                   std::int64_t world = 0);

/// The dp axis of a grid along which neighbours hold `parts` of a weight: they, or those that hold the same.
[[nodiscard]] GridAxis axis_of_parts(const GridAxis& data, std::int64_t parts, bool same);

}  // namespace mgplan::simulator
