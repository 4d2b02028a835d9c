#pragma once
// Links that a rank group uses, from the strides of its axes in the rank grid.

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

/// Messages of this size and more to one peer move at the network's full bandwidth.
inline constexpr double kFullMessageBytes = 8.0 * 1024 * 1024;

/// Links and rates of a group's traffic. All groups of one kind communicate at the same time, so that each rank has only its own share of a
/// node's network.
struct GroupPath {
    std::int64_t ranks = 1;
    std::int64_t ranks_per_domain = 1;  ///< members that reach each other inside one NVLink domain (or node)
    double inside = 0;                  ///< bytes/s per rank inside the domain
    double network = 0;                 ///< bytes/s per rank between domains
    double latency = 0;                 ///< seconds per step of the slowest link used
    double in_switch = 0;               ///< bytes/s of an array that the NVLink switch itself reduces; 0: no reduction in the switch
    double latency_inside = 0;          ///< seconds per step inside a domain, if the group spans several
    bool one_port = false;              ///< traffic to the network passes through the link that joins the domain (PCIe)
    double growth = 0;                  ///< exponent with which `inside` grows with the bytes; 0: constant
    double message_growth = 0;          ///< exponent with which `network` grows with the bytes for one peer; 0: constant
    double exchange_stage = 0;          ///< bytes/s of a stage that an all-to-all passes after the network; 0: none
    [[nodiscard]] bool crosses_network() const { return ranks > ranks_per_domain; }
    [[nodiscard]] bool single() const { return ranks <= 1; }
    [[nodiscard]] double domains() const { return static_cast<double>(ranks) / static_cast<double>(ranks_per_domain); }

    /// Latency in seconds of a ring in which each part of the array makes `rounds` rounds minus the last step of each: 1 for a gather or
    /// scatter, 2 for an all-reduce. A ring enters each domain once, so that a round has as many network steps as domains; the omitted
    /// steps of the slowest part lie inside a domain if it has any there (tests/simulator/flow_oracle_test.cpp). NCCL also counts both
    /// kinds of steps (src/graph/tuning.cc, ncclTopoGetAlgoTime).
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
    /// Bytes/s between domains if a rank sends `bytes` to each of its peers at once.
    [[nodiscard]] double network_of_messages(double bytes) const {
        const bool small = message_growth > 0 && bytes > 0 && bytes < kFullMessageBytes;
        const double wire = small ? network * std::pow(bytes / kFullMessageBytes, message_growth) : network;
        return exchange_stage > 0 ? 1 / (1 / wire + 1 / exchange_stage) : wire;
    }
    /// Bytes/s of a ring over an array of `bytes`. Across domains the bandwidth does not depend on `bytes`: no table by size is available.
    /// There each member of a domain drives a ring through its own adapter, so the rings run at the sum of their adapters. Every ring
    /// passes through every member and leaves by one adapter; at all other members it uses NVLink, which thus carries (rings - 1) / rings
    /// of the traffic. PCIe carries all of it.
    [[nodiscard]] double ring_bandwidth(double bytes) const {
        if (!crosses_network()) return inside * reached(bytes);
        const double rings = static_cast<double>(ranks_per_domain), adapters = network * rings;
        if (one_port) return std::min(inside, adapters);
        return ranks_per_domain == 1 ? network : std::min(inside * rings / (rings - 1), adapters);
    }
};

/// Path of the groups spanned by `axes` (sizes and strides of one grid) in a job on `world` ranks, which determines the number of GPUs that
/// the job uses in each NVLink domain (plan/cluster/nvlink_domains.hpp). `world` 0: all of them.
[[nodiscard]] GroupPath group_path(std::span<const GridAxis> axes, const ClusterSpec& cluster, const Calibration& calibration,
                                   std::int64_t world = 0);

/// The dp axis of a grid whose neighbours hold `parts` of a weight. `same`: the axis of ranks with the same part; else that of different
/// parts.
[[nodiscard]] GridAxis axis_of_parts(const GridAxis& data, std::int64_t parts, bool same);

}  // namespace mgplan::simulator
