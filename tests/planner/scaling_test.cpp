// Days, money and scaling of a run, and the set of layouts that are the fastest in their memory.

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/scaling.hpp"
#include "planner/search.hpp"
#include "planner/simulator_cost.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::scaling_test {
namespace {

BatchSpec batch_of(std::int64_t global_batch, std::int64_t sequence) {
    BatchSpec batch;
    batch.global_batch = global_batch;
    batch.sequence = sequence;
    return batch;
}

TEST(RunCost, CountsWholeStepsInDaysGpuHoursAndMoney) {
    // 1,000 tokens a step, 86.4 s each: a thousand steps are a day.
    const auto run = run_cost({1e6, 2.5}, batch_of(10, 100), 16, 86.4);
    ASSERT_TRUE(run);
    EXPECT_DOUBLE_EQ(run->steps, 1000);
    EXPECT_DOUBLE_EQ(run->days, 1);
    EXPECT_DOUBLE_EQ(run->gpu_hours, 24 * 16);
    EXPECT_DOUBLE_EQ(run->cost.value(), 24 * 16 * 2.5);
    // One token more is one step more.
    EXPECT_DOUBLE_EQ(run_cost({1e6 + 1, {}}, batch_of(10, 100), 16, 86.4)->steps, 1001);
    EXPECT_DOUBLE_EQ(run_cost({1, {}}, batch_of(10, 100), 16, 86.4)->steps, 1);
}

TEST(RunCost, SaysNothingOfWhatIsNotKnown) {
    EXPECT_FALSE(run_cost({}, batch_of(10, 100), 16, 86.4));
    EXPECT_FALSE(run_cost({1e6, {}}, batch_of(10, 100), 16, 86.4)->cost);
    EXPECT_DOUBLE_EQ(run_cost({1e6, 0}, batch_of(10, 100), 16, 86.4)->cost.value(), 0);
}

TEST(ScalingEfficiency, IsOneWhereSpeedGrowsWithTheWorld) {
    const double slow = tokens_per_second(batch_of(8, 1024), 2), fast = tokens_per_second(batch_of(8, 1024), 0.5);
    EXPECT_DOUBLE_EQ(slow, 4096);
    EXPECT_DOUBLE_EQ(scaling_efficiency(fast, 64, slow, 16), 1);
    EXPECT_DOUBLE_EQ(scaling_efficiency(fast, 128, slow, 16), 0.5);
    EXPECT_DOUBLE_EQ(scaling_efficiency(slow, 16, slow, 16), 1);
}

/// Small numbers, so that many are equal.
std::vector<RankedLayout> random_layouts(std::mt19937& random, std::size_t count) {
    std::vector<RankedLayout> layouts;
    std::uniform_int_distribution<int> number(1, 12);
    for (std::size_t i = 0; i < count; ++i) {
        Layout layout;
        layout.micro_batch = number(random);
        layouts.push_back({layout, static_cast<double>(number(random)), number(random)});
    }
    return layouts;
}

using Point = std::tuple<double, std::int64_t, std::int64_t>;

std::vector<Point> points_of(const std::vector<RankedLayout>& layouts) {
    std::vector<Point> points;
    for (const auto& each : layouts) points.emplace_back(each.iteration_seconds, each.peak_bytes, each.layout.micro_batch);
    return points;
}

/// What no other layout beats, by comparing all with all.
std::vector<Point> pareto_by_hand(const std::vector<RankedLayout>& layouts) {
    std::vector<Point> points;
    for (const auto& each : layouts) {
        const bool beaten = std::any_of(layouts.begin(), layouts.end(), [&](const RankedLayout& other) {
            const bool no_worse = other.iteration_seconds <= each.iteration_seconds && other.peak_bytes <= each.peak_bytes;
            const bool equal = other.iteration_seconds == each.iteration_seconds && other.peak_bytes == each.peak_bytes;
            return equal ? other.layout.micro_batch < each.layout.micro_batch : no_worse;
        });
        if (!beaten) points.emplace_back(each.iteration_seconds, each.peak_bytes, each.layout.micro_batch);
    }
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    return points;
}

TEST(ParetoSet, HoldsWhatNoOtherLayoutBeatsWhateverTheOrder) {
    std::mt19937 random(11);
    for (int trial = 0; trial < 300; ++trial) {
        auto layouts = random_layouts(random, 1 + static_cast<std::size_t>(trial) % 40);
        const auto wanted = pareto_by_hand(layouts);
        for (int order = 0; order < 3; ++order) {
            ParetoSet set;
            for (const auto& each : layouts) set.offer(each);
            ASSERT_EQ(points_of(set.layouts()), wanted);
            std::shuffle(layouts.begin(), layouts.end(), random);
        }
    }
}

TEST(ParetoSet, OfASearchBeginsWithTheFastestAndEndsWithTheSmallest) {
    const Workload work = workload_of("llama3-8b", 16);
    SearchOptions options;
    options.keep = 100000;
    options.pareto = true;
    const SearchResult all = search(work, {}, simulator_cost_model(), options);
    ParetoSet wanted;
    for (const auto& each : all.best) wanted.offer(each);
    ASSERT_GT(wanted.layouts().size(), 3U);
    options.keep = 3;
    for (const int threads : {1, 4}) {
        options.threads = threads;
        const auto pareto = search(work, {}, simulator_cost_model(), options).pareto;
        ASSERT_EQ(pareto.size(), wanted.layouts().size());
        for (std::size_t i = 0; i < pareto.size(); ++i) {
            EXPECT_EQ(pareto[i].layout, wanted.layouts()[i].layout);
            EXPECT_EQ(pareto[i].iteration_seconds, wanted.layouts()[i].iteration_seconds);
            EXPECT_EQ(pareto[i].peak_bytes, wanted.layouts()[i].peak_bytes);
        }
        EXPECT_EQ(pareto.front().layout, all.best.front().layout);
        const auto smallest =
            std::min_element(all.best.begin(), all.best.end(), [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; });
        EXPECT_EQ(pareto.back().peak_bytes, smallest->peak_bytes);
    }
    options.pareto = false;
    EXPECT_TRUE(search(work, {}, simulator_cost_model(), options).pareto.empty());
}

}  // namespace
}  // namespace mgplan::planner::testing::scaling_test
