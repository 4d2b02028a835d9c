// The families of a search are those that all its layouts form.

#include "planner/family_set.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "planner/plan_families.hpp"
#include "planner/search.hpp"
#include "planner/simulator_cost.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::family_set_test {
namespace {

RankedLayout ranked(std::int64_t tp, std::int64_t micro_batch, double seconds, std::int64_t bytes) {
    RankedLayout made{{}, seconds, bytes};
    made.layout.sizes.tp = tp;
    made.layout.micro_batch = micro_batch;
    return made;
}

TEST(FamilySet, KeepsTheFastestInAnyOrderOfOffersAndThreads) {
    // Two of the three of tp 2 are equally fast; the smaller one of these stays.
    const std::vector<RankedLayout> offers{ranked(2, 1, 3, 10), ranked(4, 1, 2.5, 90), ranked(2, 2, 2, 20), ranked(2, 4, 2, 15)};
    std::vector<std::size_t> order{0, 1, 2, 3};
    do {
        FamilySet one, two;
        for (std::size_t i = 0; i < order.size(); ++i) {
            const RankedLayout& each = offers[order[i]];
            (i < 2 ? one : two).offer(each.layout, each.iteration_seconds, each.peak_bytes);
        }
        one.absorb(std::move(two));
        const std::vector<FamilyPoint> points = one.take();
        ASSERT_EQ(points.size(), 2U);
        EXPECT_EQ(points[0].fastest.layout.micro_batch, 4);
        EXPECT_EQ(points[0].fastest.peak_bytes, 15);
        EXPECT_EQ(points[0].members, 3);
        EXPECT_EQ(points[1].fastest.layout.sizes.tp, 4);
        EXPECT_EQ(points[1].members, 1);
        EXPECT_TRUE(one.take().empty());
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST(FamilySet, OfASearchHoldsEveryFamilyOnce) {
    for (const auto& work : {workload_of("llama3-8b", 16), workload_of("mixtral-8x7b", 16)}) {
        SearchOptions options;
        options.keep = 1'000'000;
        const SearchResult all = search(work, {}, simulator_cost_model(), options);
        EXPECT_TRUE(all.families.empty());
        const std::vector<PlanFamily> wanted = plan_families(all.best, all.best.size());
        ASSERT_GT(wanted.size(), 10U);
        options.keep = 3;
        options.families = true;
        for (const int threads : {1, 4}) {
            options.threads = threads;
            const SearchResult found = search(work, {}, simulator_cost_model(), options);
            ASSERT_EQ(found.families.size(), wanted.size());
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                EXPECT_EQ(fingerprint(found.families[i].fastest.layout), fingerprint(all.best[wanted[i].fastest].layout));
                EXPECT_EQ(found.families[i].fastest.iteration_seconds, all.best[wanted[i].fastest].iteration_seconds);
                EXPECT_EQ(found.families[i].members, static_cast<std::int64_t>(wanted[i].others.size()) + 1);
            }
        }
    }
}

}  // namespace
}  // namespace mgplan::planner::testing::family_set_test
