#include <array>

#include <gtest/gtest.h>

#include "plan/cluster/nvlink_domains.hpp"
#include "simulator/network/group_path.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::group_path_test {
namespace {

GroupPath path(std::initializer_list<GridAxis> axes, const ClusterSpec& cluster = round_cluster()) {
    return group_path(std::span(axes.begin(), axes.size()), cluster, ideal_calibration());
}

TEST(GroupPath, OfNeighboursStaysInsideTheDomain) {
    const GroupPath tp = path({{Axis::tp, 8, 1}});
    EXPECT_EQ(tp.ranks, 8);
    EXPECT_EQ(tp.ranks_per_domain, 8);
    EXPECT_FALSE(tp.crosses_network());
    EXPECT_DOUBLE_EQ(tp.inside, 100e9);
}

TEST(GroupPath, UsesTheLinksBetweenItsMembersAlone) {
    ClusterSpec direct = round_cluster();
    direct.direct_links = true;
    EXPECT_DOUBLE_EQ(path({{Axis::tp, 8, 1}}, direct).inside, 100e9);
    EXPECT_DOUBLE_EQ(path({{Axis::tp, 4, 1}}, direct).inside, 100e9 * 3 / 7);
    EXPECT_DOUBLE_EQ(path({{Axis::tp, 2, 1}}, direct).inside, 100e9 / 7);
}

TEST(GroupPath, OfDistantRanksHasOneMemberPerDomain) {
    const GroupPath pp = path({{Axis::pp, 4, 8}});
    EXPECT_EQ(pp.ranks_per_domain, 1);
    EXPECT_TRUE(pp.crosses_network());
    EXPECT_DOUBLE_EQ(pp.network, 10e9);
}

TEST(GroupPath, CountsTheMembersThatShareADomain) {
    EXPECT_EQ(path({{Axis::dp, 16, 2}}).ranks_per_domain, 4);
    const GroupPath both = path({{Axis::cp, 2, 2}, {Axis::dp, 16, 4}});
    EXPECT_EQ(both.ranks, 32);
    EXPECT_EQ(both.ranks_per_domain, 4);
}

TEST(GroupPath, TakesSoMuchOfARackAsDividesTheJob) {
    ClusterSpec rack = round_cluster();
    rack.gpus_per_node = 4;
    rack.nvlink_domain = 72;
    const auto inside = [&](std::int64_t ranks, std::int64_t stride, std::int64_t world) {
        const std::array<GridAxis, 1> axes{GridAxis{Axis::ep, ranks, stride}};
        return group_path(axes, rack, ideal_calibration(), world).ranks_per_domain;
    };
    EXPECT_EQ(inside(64, 1, 256), 64);
    EXPECT_EQ(inside(128, 1, 256), 64) << "two racks of 64, not one of 72 and the rest of another";
    EXPECT_EQ(inside(32, 4, 256), 16);
    EXPECT_EQ(inside(72, 1, 144), 72);
    EXPECT_EQ(inside(96, 1, 96), 48) << "two racks that hold alike many";
    EXPECT_EQ(inside(72, 1, 72), 72);
    EXPECT_EQ(inside(64, 1, 64), 64);
    EXPECT_EQ(used_gpus_of_domain(round_cluster(), 1000), 8) << "a node is one domain";
    EXPECT_EQ(used_gpus_of_domain(rack, 101), 72) << "nothing divides it";
}

TEST(GroupPath, OverEfaPassesAnotherStageInExchangesAlone) {
    ClusterSpec cluster = load_cluster("dgx-h100");
    const GroupPath over_infiniband = group_path(std::array{GridAxis{Axis::ep, 16, 1}}, cluster, default_calibration(cluster));
    cluster.network_kind = NetworkKind::efa;
    const GroupPath over_efa = group_path(std::array{GridAxis{Axis::ep, 16, 1}}, cluster, default_calibration(cluster));
    const double bytes = 1 << 22, stage = default_calibration(cluster).exchange_stage;
    EXPECT_DOUBLE_EQ(1 / over_efa.network_of_messages(bytes), 1 / over_infiniband.network_of_messages(bytes) + 1 / stage);
    EXPECT_EQ(over_efa.ring_bandwidth(bytes), over_infiniband.ring_bandwidth(bytes));
}

TEST(GroupPath, OfOneRankIsSingle) {
    EXPECT_TRUE(path({}).single());
    EXPECT_TRUE(path({{Axis::tp, 1, 1}}).single());
}

TEST(GroupPath, OfFewRanksReachesLessOfNvlink) {
    Calibration calibration = ideal_calibration();
    calibration.small_group_loss = 0.5;
    const auto inside = [&](std::int64_t ranks) {
        const std::array<GridAxis, 1> axes{GridAxis{Axis::tp, ranks, 1}};
        return group_path(axes, round_cluster(), calibration).inside;
    };
    EXPECT_DOUBLE_EQ(inside(8), 100e9);
    EXPECT_DOUBLE_EQ(inside(2), 100e9 * 0.75 / 0.9375);
    EXPECT_DOUBLE_EQ(inside(4), 100e9 * 0.875 / 0.9375);
}

TEST(GroupPath, MovesSmallArraysAtLessThanNvlinksBandwidth) {
    Calibration calibration = ideal_calibration();
    calibration.bandwidth_growth = 0.1;
    const std::array<GridAxis, 1> near{GridAxis{Axis::tp, 8, 1}}, far{GridAxis{Axis::dp, 16, 1}};
    const GroupPath tp = group_path(near, round_cluster(), calibration), dp = group_path(far, round_cluster(), calibration);
    EXPECT_DOUBLE_EQ(tp.ring_bandwidth(1024.0 * 1024 * 1024), 100e9);
    EXPECT_DOUBLE_EQ(tp.ring_bandwidth(1024.0 * 1024), 100e9 / 2);  // 1,024 to the power of 0.1
    EXPECT_DOUBLE_EQ(tp.ring_bandwidth(1e12), 100e9);
    EXPECT_DOUBLE_EQ(dp.ring_bandwidth(1024.0 * 1024), dp.ring_bandwidth(1e12));
    ClusterSpec pcie = round_cluster();
    pcie.nvlink_domain = 1;
    EXPECT_DOUBLE_EQ(group_path(near, pcie, calibration).ring_bandwidth(1024.0 * 1024), 20e9);
}

TEST(GroupPath, HasABandwidthForNoBytesToo) {
    GroupPath path{.ranks = 8, .ranks_per_domain = 8, .inside = 1e9};
    path.growth = 0.1;
    EXPECT_GT(path.ring_bandwidth(0), 0) << "0 bytes over it are 0 seconds, not 0 / 0";
}

TEST(GroupPath, SpansARackWhoseNvlinkDomainIsLargerThanANode) {
    ClusterSpec rack = round_cluster();
    rack.gpus_per_node = 4;
    rack.nvlink_domain = 72;
    EXPECT_FALSE(path({{Axis::ep, 64, 1}}, rack).crosses_network());
    EXPECT_TRUE(path({{Axis::ep, 128, 1}}, rack).crosses_network());
}

TEST(GroupPath, WithoutNvlinkGoesThroughPcie) {
    ClusterSpec pcie = round_cluster();
    pcie.nvlink_domain = 1;
    pcie.pcie = {20e9, 3e-6};
    const GroupPath tp = path({{Axis::tp, 8, 1}}, pcie);
    EXPECT_FALSE(tp.crosses_network());
    EXPECT_DOUBLE_EQ(tp.inside, 20e9);
    EXPECT_DOUBLE_EQ(tp.latency, 3e-6);
    EXPECT_TRUE(tp.one_port) << "the network adapter is behind it too";
    EXPECT_FALSE(path({{Axis::tp, 8, 1}}).one_port);
}

TEST(GroupPath, HasTheLatencyOfItsSlowestLink) {
    ClusterSpec cluster = round_cluster();
    cluster.nvlink.latency = 1e-6;
    cluster.network.latency = 5e-6;
    EXPECT_DOUBLE_EQ(path({{Axis::tp, 8, 1}}, cluster).latency, 1e-6);
    EXPECT_DOUBLE_EQ(path({{Axis::dp, 4, 8}}, cluster).latency, 5e-6);
    EXPECT_DOUBLE_EQ(path({{Axis::dp, 8, 4}}, cluster).latency_inside, 1e-6);
}

}  // namespace
}  // namespace mgplan::simulator::group_path_test
