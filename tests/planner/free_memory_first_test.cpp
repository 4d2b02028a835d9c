// In which order layouts stand that are nearly as fast.

#include "planner/free_memory_first.hpp"

#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mgplan::planner::testing::free_memory_first_test {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

/// Layouts of these GiB, fastest first: each has its place among them, from 1, as its micro-batch.
std::vector<RankedLayout> layouts_of(const std::vector<double>& gib) {
    std::vector<RankedLayout> best;
    for (const double each : gib) {
        RankedLayout& added = best.emplace_back();
        added.layout.micro_batch = std::ssize(best);
        added.iteration_seconds = 1 + 0.0001 * static_cast<double>(best.size());
        added.peak_bytes = static_cast<std::int64_t>(each * (std::int64_t{1} << 30));
    }
    return best;
}

std::vector<std::int64_t> numbers_of(const std::vector<RankedLayout>& best) {
    std::vector<std::int64_t> numbers;
    for (const RankedLayout& each : best) numbers.push_back(each.layout.micro_batch);
    return numbers;
}

/// Their numbers in their new order.
std::vector<std::int64_t> ordered(const std::vector<double>& gib) {
    std::vector<RankedLayout> best = layouts_of(gib);
    order_by_free_memory(best, best.size());
    return numbers_of(best);
}

TEST(FreeMemoryFirst, TakesNoMoreTimeForLessThanAGibibyte) {
    EXPECT_THAT(ordered({76, 75.99}), ElementsAre(1, 2));
    EXPECT_THAT(ordered({76, 75.01}), ElementsAre(1, 2));
    EXPECT_THAT(ordered({76, 75}), ElementsAre(2, 1));
    EXPECT_THAT(ordered({76, 77}), ElementsAre(1, 2));
}

TEST(FreeMemoryFirst, PutsMostFreeMemoryFirstWhereItIsWorthTheTime) {
    EXPECT_THAT(ordered({76, 70, 60, 50}), ElementsAre(4, 3, 2, 1));
    // The third leaves little more than the second, so that stands before it, and both before the first.
    EXPECT_THAT(ordered({76, 70, 69.9}), ElementsAre(2, 3, 1));
    // Not the second, which leaves less than a gibibyte more than the fastest.
    EXPECT_THAT(ordered({76, 75.4, 74.5}), ElementsAre(1, 2, 3));
    // Small steps add up.
    EXPECT_THAT(ordered({76, 75.5, 74.9, 74.2}), ElementsAre(3, 4, 1, 2));
}

TEST(FreeMemoryFirst, OfNeighboursTheFirstIsFasterOrLeavesAGibibyteMore) {
    std::mt19937 random(20261128);
    for (int i = 0; i < 200; ++i) {
        std::vector<double> gib(2 + random() % 12);
        for (double& each : gib) each = 70 + 0.1 * static_cast<double>(random() % 60);
        const auto order = ordered(gib);
        EXPECT_TRUE(order[0] == 1 || gib[0] - gib[static_cast<std::size_t>(order[0] - 1)] > 1 - 1e-6) << "before the fastest";
        for (std::size_t k = 1; k < order.size(); ++k) {
            const auto a = static_cast<std::size_t>(order[k - 1] - 1), b = static_cast<std::size_t>(order[k] - 1);
            EXPECT_TRUE(a < b || gib[b] - gib[a] > 1 - 1e-6) << gib[a] << " GiB before " << gib[b];
        }
    }
}

TEST(FreeMemoryFirst, LeavesTheRestOfAListAlone) {
    std::vector<RankedLayout> best(3);
    best[0].peak_bytes = std::int64_t{70} << 30;
    best[1].peak_bytes = std::int64_t{60} << 30;
    best[2].peak_bytes = std::int64_t{10} << 30;
    order_by_free_memory(best, 2);
    EXPECT_EQ(best[0].peak_bytes >> 30, 60);
    EXPECT_EQ(best[1].peak_bytes >> 30, 70);
    EXPECT_EQ(best[2].peak_bytes >> 30, 10);
}

/// Numbers of layouts as order_nearly_as_fast() puts them; `replayed`: GiB that a replay finds of each.
std::vector<std::int64_t> ordered_as_replayed(const std::vector<double>& gib, const std::vector<double>& replayed) {
    std::vector<RankedLayout> best = layouts_of(gib);
    for (RankedLayout& each : best) each.layout.engine = Engine::megatron;
    order_nearly_as_fast(best, best.size(), [&](const Layout& layout) {
        return static_cast<std::int64_t>(replayed[static_cast<std::size_t>(layout.micro_batch - 1)] * (std::int64_t{1} << 30));
    });
    return numbers_of(best);
}

TEST(FreeMemoryFirst, LeavesTheFastestBehindAllThatAreWorthTheTime) {
    std::vector<double> gib(kSortedAsReplayed + 20, 70);
    gib.front() = 76;
    std::vector<std::int64_t> expected;
    for (std::int64_t i = 2; i <= std::ssize(gib); ++i) expected.push_back(i);
    expected.push_back(1);
    EXPECT_THAT(ordered_as_replayed(gib, gib), ElementsAreArray(expected));
    // Its replay leaves as much free as those of the others.
    std::vector<double> replayed = gib;
    replayed.front() = 70.5;
    EXPECT_EQ(ordered_as_replayed(gib, replayed).front(), 1);
    // The last of those that are replayed leaves less.
    replayed = gib;
    replayed[kSortedAsReplayed] = 75.5;
    const auto order = ordered_as_replayed(gib, replayed);
    EXPECT_THAT(std::vector(order.begin() + kSortedAsReplayed - 1, order.begin() + kSortedAsReplayed + 1),
                ElementsAre(1, kSortedAsReplayed + 1));
}

}  // namespace
}  // namespace mgplan::planner::testing::free_memory_first_test
