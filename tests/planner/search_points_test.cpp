// The points of a search's picture: every family, the Pareto set, and predictions that are those of the plans.

#include "planner/search_points.hpp"

#include <algorithm>
#include <iterator>

#include <gtest/gtest.h>

#include "planner/plan_families.hpp"
#include "planner/ranking.hpp"
#include "simulator/cost_model.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::search_points_test {
namespace {

Ranking ranked(const Workload& work) {
    RankingOptions options;
    options.plans = 4;
    options.pareto = options.families = true;
    return rank_layouts(work, {}, options);
}

TEST(SearchPoints, AreTheFamiliesAndTheParetoSetBestFirst) {
    const Workload work = workload_of("llama3-8b", 16);
    const Ranking ranking = ranked(work);
    simulator::CostModel model(work);
    const std::vector<SearchPoint> points = search_points(model, ranking.search);
    const auto is_family = [](const SearchPoint& point) { return point.members > 0; };
    ASSERT_EQ(std::count_if(points.begin(), points.end(), is_family), std::ssize(ranking.search.families));
    std::int64_t members = 0;
    for (const SearchPoint& point : points) members += point.members;
    EXPECT_EQ(members, ranking.search.feasible + ranking.search.too_large_replayed.count) << "every fitting layout is of one family";
    for (const RankedLayout& member : ranking.search.pareto) {
        const bool shown = std::any_of(points.begin(), points.end(), [&](const auto& point) {
            return point.plan.layout == member.layout || (point.plan.rank > 0 && same_family(point.plan.layout, member.layout));
        });
        EXPECT_TRUE(shown) << fingerprint(member.layout);
    }
    EXPECT_GT(std::ssize(points), std::ssize(ranking.search.families)) << "members of the Pareto set stand beside their families";

    // The plans are among the first of the families, with the same figures.
    std::vector<SearchPoint> families;
    std::copy_if(points.begin(), points.end(), std::back_inserter(families), is_family);
    ASSERT_GT(ranking.plans.size(), 1U);
    const auto last = families.begin() + kRankedFamilies;
    for (const PlannedLayout& plan : ranking.plans) {
        const auto same = std::find_if(families.begin(), last, [&](const auto& point) { return point.plan.rank == plan.rank; });
        ASSERT_NE(same, last) << plan.rank;
        EXPECT_EQ(same->plan.layout, plan.layout);
        EXPECT_EQ(same->plan.prediction.time.iteration_seconds, plan.prediction.time.iteration_seconds);
        EXPECT_EQ(same->plan.prediction.memory.deciding_bytes(), plan.prediction.memory.deciding_bytes());
    }
    EXPECT_TRUE(std::is_partitioned(points.begin(), points.end(), is_family)) << "families first";
    const auto unranked = std::find_if(families.begin(), families.end(), [](const auto& point) { return point.plan.rank == 0; });
    EXPECT_TRUE(std::none_of(unranked, families.end(), [](const auto& point) { return point.plan.rank > 0; }));
    EXPECT_TRUE(std::is_sorted(unranked, families.end(), [](const auto& a, const auto& b) {
        return a.plan.prediction.time.iteration_seconds < b.plan.prediction.time.iteration_seconds;
    }));
    EXPECT_TRUE(std::all_of(points.begin(), points.begin() + 10, [](const auto& point) { return point.replayed; }));
}

TEST(SearchPoints, OfManyKeepTheBest) {
    const Workload work = workload_of("llama3-8b", 16);
    const Ranking ranking = ranked(work);
    simulator::CostModel model(work);
    const std::vector<SearchPoint> all = search_points(model, ranking.search), few = search_points(model, ranking.search, 1, 5);
    ASSERT_EQ(std::count_if(few.begin(), few.end(), [](const auto& point) { return point.members > 0; }), 5);
    for (std::size_t i = 0; i < ranking.plans.size(); ++i) EXPECT_EQ(few[i].plan.layout, all[i].plan.layout);
    SearchResult nothing;
    EXPECT_TRUE(search_points(model, nothing).empty());
}

TEST(SearchPoints, BeyondTheReplaysHaveTheTimeOfTheSearch) {
    // A batch this large makes each iteration long: few are replayed.
    Workload work = workload_of("llama3-8b", 16, "dgx-h100", 65536);
    const Ranking ranking = ranked(work);
    simulator::CostModel model(work);
    const std::vector<SearchPoint> points = search_points(model, ranking.search);
    const auto estimated = std::find_if(points.begin(), points.end(), [](const auto& point) { return !point.replayed; });
    ASSERT_NE(estimated, points.end());
    EXPECT_EQ(estimated->plan.prediction.time.iteration_seconds, model.estimate_seconds(estimated->plan.layout));
    EXPECT_TRUE(points.front().replayed);
}

}  // namespace
}  // namespace mgplan::planner::testing::search_points_test
