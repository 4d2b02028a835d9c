// Times of collectives against SimGrid: flows through the links of a group and of all groups beside it, with data-sheet
// bandwidth on both sides. 2 % where the formulas claim to be exact: in one domain, with one member a domain, and across domains
// where either latency or bandwidth sets the pace.

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "tests/simulator/flow_network.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::flow_oracle_test {
namespace {

constexpr double kTolerance = 0.02;
constexpr double kTiny = 4096, kHuge = 16e9;

/// All groups of one axis of the rank grid: `size` ranks, `stride` apart, over whole nodes of eight.
struct Machine {
    int world = 32;
    int size = 8;
    int stride = 1;
    int nics_per_node = 8;
    double network = 10e9;  ///< bytes/s per GPU

    [[nodiscard]] GroupPath path() const {
        ClusterSpec cluster = round_cluster();
        cluster.nvlink.latency = 2e-6;
        cluster.network = {network, 5e-6};
        const GridAxis axis{Axis::dp, size, stride};
        return group_path(std::span(&axis, 1), cluster, ideal_calibration());
    }
    [[nodiscard]] FlowPlatform platform() const {
        // NVLink with what a group of this size reaches of it, as the formulas have it (network/group_path.cpp).
        return {.nodes = world / 8,
                .nics_per_node = nics_per_node,
                .nvlink = path().inside,
                .network = network,
                .nvlink_latency = 2e-6,
                .network_latency = 5e-6};
    }
    [[nodiscard]] std::vector<FlowGroup> groups() const {
        std::vector<FlowGroup> all;
        for (int first = 0; first < world; ++first) {
            if (first / stride % size != 0) continue;
            FlowGroup group;
            for (int i = 0; i < size; ++i) group.push_back(first + i * stride);
            all.push_back(std::move(group));
        }
        return all;
    }
    [[nodiscard]] double flows(FlowPattern pattern, double bytes) const { return flow_seconds(platform(), groups(), pattern, bytes); }
};

void expect_near(double ours, double flows, const std::string& what) {
    EXPECT_NEAR(ours / flows, 1, kTolerance) << what << ": ours " << ours << " s, flows " << flows << " s";
}

/// The ring's collectives, and of all of them.
void expect_rings_near(const Machine& machine, double bytes, const std::string& what) {
    const GroupPath path = machine.path();
    const double once = machine.flows(FlowPattern::ring_once, bytes), twice = machine.flows(FlowPattern::ring_twice, bytes);
    expect_near(all_gather_seconds(bytes, path, ideal_calibration()), once, "all-gather, " + what);
    expect_near(reduce_scatter_seconds(bytes, path, ideal_calibration()), once, "reduce-scatter, " + what);
    // The formula takes the faster of ring and trees; the flows are a ring's.
    const double ours = 2 * bytes * (1 - 1 / static_cast<double>(path.ranks)) / path.ring_bandwidth(bytes) + path.ring_latency(2);
    expect_near(ours, twice, "ring of an all-reduce, " + what);
    EXPECT_LE(all_reduce_seconds(bytes, path, ideal_calibration()), ours * (1 + 1e-12)) << what;
    if (!path.crosses_network()) {
        EXPECT_DOUBLE_EQ(all_reduce_seconds(bytes, path, ideal_calibration()), ours) << what;
    }
}

TEST(FlowOracle, RingsInsideADomainAgreeAtEverySize) {
    for (const int size : {2, 4, 8}) {
        for (const double bytes : {kTiny, 1e6, 16e6, kHuge})
            expect_rings_near({.world = 8, .size = size}, bytes, fmt::format("{} ranks, {} bytes", size, bytes));
    }
}

TEST(FlowOracle, RingsOfOneMemberADomainAgreeAtEverySize) {
    for (const int nodes : {2, 4}) {
        for (const double bytes : {kTiny, 1e6, kHuge})
            expect_rings_near({.world = 8 * nodes, .size = nodes, .stride = 8}, bytes, fmt::format("{} nodes, {} bytes", nodes, bytes));
    }
}

TEST(FlowOracle, RingsAcrossDomainsAgreeWhereLatencyOrBandwidthSetsThePace) {
    // Two, four and eight members a domain; the network's adapters are the narrow place, or NVLink is.
    for (const int stride : {4, 2, 1}) {
        for (const double network : {10e9, 80e9}) {
            for (const double bytes : {kTiny, kHuge}) {
                expect_rings_near({.size = 32 / stride, .stride = stride, .network = network}, bytes,
                                  fmt::format("stride {}, network {}, {} bytes", stride, network, bytes));
            }
        }
    }
}

TEST(FlowOracle, RingsAcrossDomainsAreNeverTooFastWhereBothCount) {
    // Parts of the array follow each other through the ring, so that some of the latency hides; the formula adds it up, as NCCL's
    // own model does.
    const Machine machine{.size = 32};
    for (const double bytes : {1e6, 1e7, 1e8}) {
        const double flows = machine.flows(FlowPattern::ring_once, bytes);
        const double ours = all_gather_seconds(bytes, machine.path(), ideal_calibration());
        EXPECT_GE(ours, flows * (1 - kTolerance)) << bytes;
        EXPECT_LE(ours, flows * 1.6) << bytes;
    }
}

TEST(FlowOracle, GroupsThatShareAnAdapterEachHaveTheirShare) {
    for (const int nics : {4, 2, 1}) {
        for (const int stride : {8, 4, 2, 1}) {
            expect_rings_near({.size = 32 / stride, .stride = stride, .nics_per_node = nics}, kHuge,
                              fmt::format("{} adapters a node, stride {}", nics, stride));
        }
    }
    // That is because all of them are at work: one alone has the adapters to itself.
    const Machine machine{.size = 4, .stride = 8, .nics_per_node = 1};
    const double alone = flow_seconds(machine.platform(), {machine.groups().front()}, FlowPattern::ring_once, kHuge);
    EXPECT_NEAR(machine.flows(FlowPattern::ring_once, kHuge) / alone, 8, 0.01);
}

TEST(FlowOracle, GroupsOffTheirRailsAgreeOverAFabricThatDoesNotBlock) {
    for (const int nics : {8, 4}) {
        const Machine machine{.size = 4, .stride = 8, .nics_per_node = nics};
        auto groups = machine.groups();
        // On each node the next adapter: no group keeps to one rail.
        for (FlowGroup& group : groups) {
            for (std::size_t node = 0; node < group.size(); ++node) {
                const int local = group[node] % 8;
                group[node] = static_cast<int>(node) * 8 + (local + static_cast<int>(node)) % 8;
            }
        }
        for (const double bytes : {kTiny, kHuge}) {
            expect_near(all_gather_seconds(bytes, machine.path(), ideal_calibration()),
                        flow_seconds(machine.platform(), groups, FlowPattern::ring_once, bytes), fmt::format("{} adapters", nics));
        }
    }
}

TEST(FlowOracle, ExchangesAgree) {
    for (const int nics : {8, 1}) {
        for (const int stride : {8, 4, 1}) {
            const Machine machine{.size = 32 / stride, .stride = stride, .nics_per_node = nics};
            for (const double bytes : {kTiny, kHuge}) {
                expect_near(all_to_all_seconds(bytes, machine.path(), ideal_calibration()), machine.flows(FlowPattern::exchange, bytes),
                            fmt::format("stride {}, {} adapters, {} bytes", stride, nics, bytes));
            }
        }
    }
    const Machine inside{.world = 8, .size = 8};
    expect_near(all_to_all_seconds(kHuge, inside.path(), ideal_calibration()), inside.flows(FlowPattern::exchange, kHuge), "inside");
}

TEST(FlowOracle, TransfersBetweenStagesAgree) {
    for (const int nics : {8, 1}) {
        const Machine machine{.size = 4, .stride = 8, .nics_per_node = nics};
        for (const double bytes : {kTiny, kHuge}) {
            expect_near(send_receive_seconds(bytes, machine.path(), ideal_calibration()), machine.flows(FlowPattern::shift, bytes),
                        fmt::format("{} adapters, {} bytes", nics, bytes));
        }
    }
    const Machine inside{.world = 8, .size = 4, .stride = 2};
    expect_near(send_receive_seconds(kHuge, inside.path(), ideal_calibration()), inside.flows(FlowPattern::shift, kHuge), "inside");
}

}  // namespace
}  // namespace mgplan::simulator::flow_oracle_test
