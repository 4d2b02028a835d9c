// A slower cluster never looks faster, and a layout that uses the slower part looks slower.

#include <array>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "planner/constraints.hpp"
#include "planner/search.hpp"
#include "planner/simulator_cost.hpp"
#include "runtime/sanitizers.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::sensitivity_test {
namespace {

constexpr std::int64_t kAnyAmount = std::numeric_limits<std::int64_t>::max();

void halve_network(ClusterSpec& cluster) {
    cluster.network.bandwidth /= 2;
}
void halve_nvlink(ClusterSpec& cluster) {
    cluster.nvlink.bandwidth /= 2;
}
void halve_memory_bandwidth(ClusterSpec& cluster) {
    cluster.memory_bandwidth /= 2;
}
void halve_peak(ClusterSpec& cluster) {
    for (auto& [precision, rate] : cluster.peak_flops) rate /= 2;
}

Workload changed(Workload work, void (*change)(ClusterSpec&)) {
    change(work.cluster);
    return work;
}

double seconds(const Workload& work, const Layout& layout) {
    return simulator_cost_model()(work).iteration_seconds(layout).seconds;
}

// Mixtures, whose searches take a minute and a half under sanitizers, run in release builds.
#ifdef MGPLAN_ADDRESS_SANITIZER
constexpr std::array kSmallModels{"llama3-8b"};
constexpr std::array kLargeModels{"llama3-70b"};
#else
constexpr std::array kSmallModels{"llama3-8b", "mixtral-8x7b", "deepseek-v2-lite"};
constexpr std::array kLargeModels{"llama3-70b", "mixtral-8x22b"};
#endif

TEST(Sensitivity, NoLayoutGetsFasterOnASlowerCluster) {
    for (const char* model : kSmallModels) {
        const Workload work = workload_of(model, 32);
        CandidateCounts counts;
        std::vector<Layout> some;
        std::size_t i = 0;
        for (const Layout& layout : candidates_of(work, SearchSpace{}, counts)) {
            if (i++ % 31 == 0) some.push_back(layout);
        }
        ASSERT_GT(some.size(), 50U);
        const LayoutCost before = simulator_cost_model()(work);
        for (const auto change : {halve_network, halve_nvlink, halve_memory_bandwidth, halve_peak}) {
            const Workload slower = changed(work, change);
            const LayoutCost after = simulator_cost_model()(slower);
            for (const Layout& layout : some) {
                EXPECT_GE(after.iteration_seconds(layout).seconds, before.iteration_seconds(layout).seconds) << fingerprint(layout);
                EXPECT_EQ(after.memory(layout, kAnyAmount).bytes, before.memory(layout, kAnyAmount).bytes) << fingerprint(layout);
            }
        }
    }
}

TEST(Sensitivity, ALayoutThatUsesTheLinkGetsSlower) {
    const Workload work = workload_of("llama3-70b", 64);
    const Workload experts = workload_of("mixtral-8x7b", 64);
    LayoutRequest tp8;
    tp8.tp = 8;
    EXPECT_GT(seconds(changed(work, halve_nvlink), make_layout(tp8, work)), seconds(work, make_layout(tp8, work)));
    // dp 8 across nodes.
    EXPECT_GT(seconds(changed(work, halve_network), make_layout(tp8, work)), seconds(work, make_layout(tp8, work)));
    LayoutRequest stages;
    stages.tp = 8;
    stages.pp = 8;
    EXPECT_GT(seconds(changed(work, halve_network), make_layout(stages, work)), seconds(work, make_layout(stages, work)));
    LayoutRequest ep8;
    ep8.ep = 8;
    ep8.etp = 1;
    EXPECT_GT(seconds(changed(experts, halve_nvlink), make_layout(ep8, experts)), seconds(experts, make_layout(ep8, experts)));
    LayoutRequest cp16;
    cp16.cp = 16;
    cp16.cp_comm_type = CpCommType::all_gather;
    EXPECT_GT(seconds(changed(work, halve_network), make_layout(cp16, work)), seconds(work, make_layout(cp16, work)));
    LayoutRequest plain;
    EXPECT_GT(seconds(changed(work, halve_peak), make_layout(plain, work)), seconds(work, make_layout(plain, work)));
}

TEST(Sensitivity, ALayoutWithinANodeDoesNotFeelTheNetwork) {
    const Workload work = workload_of("llama3-8b", 8);
    LayoutRequest request;
    request.tp = 2;
    request.pp = 2;
    const Layout layout = make_layout(request, work);
    EXPECT_EQ(seconds(changed(work, halve_network), layout), seconds(work, layout));
    EXPECT_GT(seconds(changed(work, halve_nvlink), layout), seconds(work, layout));
}

TEST(Sensitivity, TheBestIsNoFasterOnASlowerClusterAndWithLessMemory) {
    for (const char* model : kLargeModels) {
        const Workload work = workload_of(model, 64);
        const auto found = [](const Workload& workload) { return search(workload, SearchSpace{}, simulator_cost_model(), {}); };
        const auto before = found(work);
        ASSERT_FALSE(before.best.empty());
        for (const auto change : {halve_network, halve_nvlink, halve_memory_bandwidth, halve_peak}) {
            const auto after = found(changed(work, change));
            ASSERT_FALSE(after.best.empty());
            EXPECT_GT(after.best.front().iteration_seconds, before.best.front().iteration_seconds);
            EXPECT_EQ(after.feasible, before.feasible);
        }
        Workload half = work;
        half.memory_limit /= 2;
        const auto tight = found(half);
        EXPECT_LT(tight.feasible, before.feasible);
        EXPECT_EQ(tight.counts.legal, before.counts.legal);
        if (!tight.best.empty()) {
            EXPECT_GE(tight.best.front().iteration_seconds, before.best.front().iteration_seconds);
        }
        for (const auto& ranked : tight.best) EXPECT_LE(ranked.peak_bytes, half.memory_limit);
    }
}

TEST(Sensitivity, ASlowNetworkMovesTrafficOffIt) {
    // With a hundredth of the network the best layout must not send experts' tokens across nodes.
    Workload work = workload_of("mixtral-8x7b", 32);
    work.cluster.network.bandwidth /= 100;
    const auto slow = search(work, SearchSpace{}, simulator_cost_model(), {});
    ASSERT_FALSE(slow.best.empty());
    const Layout& best = slow.best.front().layout;
    EXPECT_LE(best.sizes.ep * best.sizes.etp, 8) << fingerprint(best);
}

}  // namespace
}  // namespace mgplan::planner::testing::sensitivity_test
