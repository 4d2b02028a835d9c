// What a rank holds when its experts receive more rows than the even split's.

#include <gtest/gtest.h>

#include "round_numbers.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::simulator::routed_memory_test {
namespace {

RoutingSkew zipf(double exponent) {
    RoutingSkew skew;
    skew.kind = RoutingKind::zipf;
    skew.exponent = exponent;
    return skew;
}

/// Bytes of a row that experts keep, of hidden size 1024 and a gated width of 512 in 16 bits, and its probability; and of the
/// gradients of the same, with the row once more.
constexpr std::int64_t kSaved = (1024 + 2 * 512 + 512) * 2 + 4, kTransient = (2 * 512 + 512 + 2 * 1024) * 2;
/// 512 tokens with 2 copies each are the even share; where a rank has 2 of 8 experts, it can get 4 times as many.
constexpr std::int64_t kMore = 3 * 1024;

/// What more rows add: what they keep, and what is alive of them beside that at the fullest instant of a pass.
void expect_more(const RankMemory& memory, std::int64_t kept_per_row) {
    const std::int64_t more = memory.routing->worst - memory.peak_bytes();
    EXPECT_GE(more, kMore * kept_per_row);
    EXPECT_LE(more, kMore * (kept_per_row + kTransient));
}

TEST(RoutedMemory, GrowsByTheBytesOfTheRows) {
    Workload workload = workload_of(mixture(4), 8, 16);
    workload.model.ffn = 256;  // so that mixtures are at the peak
    LayoutRequest request;
    request.ep = 4;
    request.pp = 2;
    const Layout layout = planner::make_layout(request, workload);
    CostModel model(workload, ideal_calibration());
    // The first stage holds a dense layer and a mixture, of two microbatches at once; the second two mixtures, of one.
    for (const int stage : {0, 1}) {
        const RankMemory memory = model.stage_memory(layout, stage);
        SCOPED_TRACE(testing::Message() << "stage " << stage);
        expect_more(memory, 2 * kSaved);
    }
    request.recompute = Recompute::full;
    const Layout again = planner::make_layout(request, workload);
    for (const int stage : {0, 1}) {
        const RankMemory memory = model.stage_memory(again, stage);
        SCOPED_TRACE(testing::Message() << "one layer, stage " << stage);
        expect_more(memory, kSaved);
    }
    request.recompute = Recompute::selective;
    request.recompute_modules = {RecomputeModule::moe};
    const Layout without = planner::make_layout(request, workload);
    const RankMemory memory = model.stage_memory(without, 1);
    SCOPED_TRACE(testing::Message() << "one mixture");
    expect_more(memory, kSaved);
}

TEST(RoutedMemory, IsThatOfTheEvenSplitWhereRoutingIsBalanced) {
    Workload workload = workload_of(mixture(4), 8, 16);
    workload.routing.kind = RoutingKind::balanced;
    LayoutRequest request;
    request.ep = 8;
    const MemoryPrediction memory = CostModel(workload).estimate(planner::make_layout(request, workload)).memory;
    EXPECT_EQ(memory.worst.routing->skew, "balanced");
    EXPECT_EQ(memory.worst.routing->p50, memory.worst.peak_bytes());
    EXPECT_EQ(memory.worst.routing->p99, memory.worst.peak_bytes());
    EXPECT_GT(memory.worst.routing->worst, memory.worst.peak_bytes());
    request.ep = 1;
    const RankMemory whole = CostModel(workload).estimate(planner::make_layout(request, workload)).memory.worst;
    EXPECT_EQ(whole.routing->worst, whole.peak_bytes()) << "a rank that holds all experts gets all rows anyway";
}

TEST(RoutedMemory, LeavesTheEvenPeakAloneAndDecidesWhatFits) {
    Workload even = workload_of(mixture(4), 8, 16);
    LayoutRequest request;
    request.ep = 4;
    request.pp = 2;
    const Layout layout = planner::make_layout(request, even);
    Workload skewed = even;
    skewed.routing = zipf(1);
    const MemoryPrediction fair = CostModel(even).estimate(layout).memory, popular = CostModel(skewed).estimate(layout).memory;
    EXPECT_EQ(fair.worst.breakdown, popular.worst.breakdown);
    EXPECT_LT(fair.worst.peak_bytes(), fair.worst.routing->p50);
    EXPECT_LT(fair.worst.routing->p50, fair.worst.routing->p99);
    EXPECT_LT(fair.worst.routing->p99, popular.worst.routing->p50);
    EXPECT_LT(popular.worst.routing->p50, popular.worst.routing->p99);
    EXPECT_LT(popular.worst.routing->p99, popular.worst.routing->worst);
    EXPECT_EQ(fair.worst.routing->worst, popular.worst.routing->worst);

    skewed.memory_limit = popular.worst.routing->p99;
    EXPECT_TRUE(CostModel(skewed).estimate(layout).memory.fits());
    --skewed.memory_limit;
    EXPECT_FALSE(CostModel(skewed).estimate(layout).memory.fits());
    even.memory_limit = skewed.memory_limit;
    EXPECT_TRUE(CostModel(even).estimate(layout).memory.fits());
}

TEST(RoutedMemory, IsTheSameForTheSearchAndForEachStage) {
    Workload workload = workload_of(mixture(8), 32, 64);
    for (const double exponent : {0.0, 0.7}) {
        workload.routing = zipf(exponent);
        CostModel model(workload);
        for (const auto& [ep, pp, vpp] : {std::tuple{1, 1, 1}, std::tuple{4, 2, 1}, std::tuple{8, 4, 2}, std::tuple{2, 8, 1}}) {
            LayoutRequest request;
            request.ep = ep;
            request.pp = pp;
            request.vpp = vpp;
            const Layout layout = planner::make_layout(request, workload);
            const MemoryPrediction memory = model.estimate(layout).memory;
            const LayoutPeaks peaks = model.peaks(layout);
            EXPECT_EQ(peaks.even, memory.worst.peak_bytes());
            EXPECT_EQ(peaks.even, model.peaks(layout).even);
            EXPECT_EQ(peaks.deciding, memory.deciding_bytes());
            EXPECT_EQ(model.peaks(layout, peaks.even - 1).deciding, peaks.even) << "not looked for";
            RoutedPeaks fullest{.skew = memory.worst.routing->skew};
            for (int stage = 0; stage < pp; ++stage) {
                const RoutedPeaks here = *model.stage_memory(layout, stage).routing;
                fullest.p50 = std::max(fullest.p50, here.p50);
                fullest.p99 = std::max(fullest.p99, here.p99);
                fullest.worst = std::max(fullest.worst, here.worst);
            }
            EXPECT_EQ(fullest, *memory.worst.routing);
        }
    }
}

TEST(RoutedMemory, IsNoneOfADenseModel) {
    Workload workload = workload_of(gpt(4), 8, 16);
    workload.routing = zipf(2);
    const MemoryPrediction memory = CostModel(workload).estimate(planner::make_layout({}, workload)).memory;
    EXPECT_FALSE(memory.worst.routing);
    EXPECT_EQ(memory.deciding_bytes(), memory.worst.peak_bytes());
}

}  // namespace
}  // namespace mgplan::simulator::routed_memory_test
