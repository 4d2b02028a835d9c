#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/collectives/reduce_scatter.hpp"
#include "simulator/collectives/send_receive.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::collectives_test {
namespace {

/// 8 ranks in one domain at 100 GB/s, or 32 ranks in 4 domains with 10 GB/s of network each.
const GroupPath kInside{.ranks = 8, .ranks_per_domain = 8, .inside = 100e9, .network = 10e9, .latency = 0};
const GroupPath kAcross{.ranks = 32, .ranks_per_domain = 8, .inside = 100e9, .network = 10e9, .latency = 0};

GroupPath with_latency(GroupPath path, double seconds) {
    path.latency = seconds;
    return path;
}

TEST(AllGather, MovesSevenEighthsOfTheArrayThroughEachLink) {
    EXPECT_DOUBLE_EQ(all_gather_seconds(8e9, kInside, ideal_calibration()), 7e9 / 100e9);
}

TEST(AllGather, TakesOneStepPerNeighbour) {
    EXPECT_DOUBLE_EQ(all_gather_seconds(0, with_latency(kInside, 1e-6), ideal_calibration()), 7e-6);
    // Across domains four of the 31 steps have the network's latency: the slowest part is spared one inside a domain.
    GroupPath across = with_latency(kAcross, 1e-6);
    across.latency_inside = 1e-3;
    EXPECT_DOUBLE_EQ(all_gather_seconds(0, across, ideal_calibration()), 4e-6 + 27e-3);
    // With one member a domain all of them go through the network.
    across.ranks_per_domain = 1;
    EXPECT_DOUBLE_EQ(all_gather_seconds(0, across, ideal_calibration()), 31e-6);
}

TEST(AllGather, RunsAtTheSumOfTheDomainsAdapters) {
    EXPECT_DOUBLE_EQ(all_gather_seconds(32e9, kAcross, ideal_calibration()), 31e9 / 80e9);
    GroupPath wide = kAcross;
    wide.network = 50e9;  // eight adapters together beat NVLink, through which seven of the eight rings leave a member
    EXPECT_DOUBLE_EQ(all_gather_seconds(32e9, wide, ideal_calibration()), 31e9 / (100e9 * 8 / 7));
    wide.one_port = true;  // PCIe: the adapter's ring goes the same way
    EXPECT_DOUBLE_EQ(all_gather_seconds(32e9, wide, ideal_calibration()), 31e9 / 100e9);
}

TEST(AllReduce, IsAReduceScatterAndAnAllGather) {
    EXPECT_DOUBLE_EQ(all_reduce_seconds(8e9, kInside, ideal_calibration()), 2 * 7e9 / 100e9);
    EXPECT_DOUBLE_EQ(all_reduce_seconds(32e9, kAcross, ideal_calibration()), 2 * 31e9 / 80e9);
    EXPECT_DOUBLE_EQ(all_reduce_seconds(0, with_latency(kInside, 1e-6), ideal_calibration()), 14e-6);
}

TEST(AllReduce, SendsItsArrayOnceIntoTheSwitch) {
    GroupPath nvls = kInside;
    nvls.in_switch = 80e9;
    Calibration c = ideal_calibration();
    EXPECT_DOUBLE_EQ(all_reduce_seconds(8e9, nvls, c), 0.1);
    c.nvls_seconds = 1e-3;
    EXPECT_DOUBLE_EQ(all_reduce_seconds(8e9, nvls, c), 0.1 + 1e-3);
    c.nvls_seconds = 1;
    EXPECT_DOUBLE_EQ(all_reduce_seconds(8e9, nvls, c), 2 * 7e9 / 100e9) << "the ring where it is faster";
}

TEST(AllReduce, OfFewBytesClimbsTreesOverManyDomains) {
    GroupPath wide = with_latency(kAcross, 1e-6);
    wide.ranks = 8 * 64;
    EXPECT_DOUBLE_EQ(all_reduce_seconds(0, wide, ideal_calibration()), 2 * 6e-6) << "2·log2(64) hops, not 2·64";
    wide.latency_inside = 1e-7;
    EXPECT_DOUBLE_EQ(all_reduce_seconds(0, wide, ideal_calibration()), 2 * (6e-6 + 7e-7)) << "and a chain inside each domain";
}

TEST(ReduceScatter, IsAnAllGatherTheOtherWayRound) {
    EXPECT_DOUBLE_EQ(reduce_scatter_seconds(8e9, kInside, ideal_calibration()), 7e9 / 100e9);
    EXPECT_DOUBLE_EQ(reduce_scatter_seconds(32e9, kAcross, ideal_calibration()), 31e9 / 80e9);
    EXPECT_DOUBLE_EQ(reduce_scatter_seconds(0, with_latency(kAcross, 1e-6), ideal_calibration()), 4e-6);
}

TEST(Protocol, OfLowLatencyCarriesTheSmallMessages) {
    Calibration c = ideal_calibration();
    c.collective_seconds = 50e-6;
    c.low_latency_seconds = 10e-6;
    c.low_latency_bandwidth = 0.25;
    EXPECT_DOUBLE_EQ(all_gather_seconds(0, kInside, c), 10e-6);
    EXPECT_DOUBLE_EQ(all_gather_seconds(8e5, kInside, c), 10e-6 + 7e5 / 25e9);
    EXPECT_DOUBLE_EQ(all_gather_seconds(8e9, kInside, c), 50e-6 + 7e9 / 100e9);
}

TEST(AllToAll, SendsAllButItsOwnPart) {
    EXPECT_DOUBLE_EQ(all_to_all_seconds(8e9, kInside, ideal_calibration()), 7e9 / 100e9);
    // 7/32 stay inside (0.07 s), 24/32 leave through the rank's own adapter (2.4 s); both at once.
    EXPECT_DOUBLE_EQ(all_to_all_seconds(32e9, kAcross, ideal_calibration()), 24e9 / 10e9);
    EXPECT_DOUBLE_EQ(all_to_all_seconds(0, with_latency(kInside, 1e-6), ideal_calibration()), 1e-6);
}

TEST(SendReceive, TakesTheSlowerLinkWhereOneNeighbourIsFar) {
    EXPECT_DOUBLE_EQ(send_receive_seconds(1e9, kInside, ideal_calibration()), 0.01);
    EXPECT_DOUBLE_EQ(send_receive_seconds(1e9, kAcross, ideal_calibration()), 0.1);
    EXPECT_DOUBLE_EQ(send_receive_seconds(0, with_latency(kInside, 1e-6), ideal_calibration()), 1e-6);
}

struct NamedCollective {
    const char* name;
    double (*seconds)(double, const GroupPath&, const Calibration&);
};

class EveryCollective : public testing::TestWithParam<NamedCollective> {};

TEST_P(EveryCollective, IsFreeForOneRank) {
    Calibration c = ideal_calibration();
    c.collective_seconds = 1;
    EXPECT_EQ(GetParam().seconds(1e12, GroupPath{}, c), 0);
}

TEST_P(EveryCollective, HasAFixedCost) {
    Calibration c = ideal_calibration();
    c.collective_seconds = 1e-3;
    EXPECT_GE(GetParam().seconds(0, kInside, c), 0.5e-3);
}

TEST_P(EveryCollective, IsSlowerAcrossTheNetwork) {
    GroupPath inside = kAcross;
    inside.ranks_per_domain = inside.ranks;
    EXPECT_GT(GetParam().seconds(1e9, kAcross, ideal_calibration()), GetParam().seconds(1e9, inside, ideal_calibration()));
}

RC_GTEST_PROP(CollectiveProperties, NeverFasterWithMoreBytes, ()) {
    const auto domain = *rc::gen::inRange<std::int64_t>(1, 9);
    const auto domains = *rc::gen::inRange<std::int64_t>(1, 65);
    const auto bytes = *rc::gen::inRange<std::int64_t>(0, 1'000'000'000);
    const auto more = *rc::gen::inRange<std::int64_t>(0, 1'000'000'000);
    const GroupPath path{.ranks = domain * domains, .ranks_per_domain = domain, .inside = 100e9, .network = 10e9, .latency = 1e-6};
    for (const auto seconds : {all_gather_seconds, all_reduce_seconds, all_to_all_seconds, reduce_scatter_seconds, send_receive_seconds}) {
        const double few = seconds(static_cast<double>(bytes), path, ideal_calibration());
        const double many = seconds(static_cast<double>(bytes + more), path, ideal_calibration());
        RC_ASSERT(few >= 0);
        RC_ASSERT(many >= few);
    }
}

INSTANTIATE_TEST_SUITE_P(Collectives, EveryCollective,
                         testing::Values(NamedCollective{"all_gather", all_gather_seconds},
                                         NamedCollective{"all_reduce", all_reduce_seconds},
                                         NamedCollective{"all_to_all", all_to_all_seconds},
                                         NamedCollective{"reduce_scatter", reduce_scatter_seconds},
                                         NamedCollective{"send_receive", send_receive_seconds}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace mgplan::simulator::collectives_test
