// One call ranks what the command shows.

#include "planner/ranking.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"
#include "planner/plan_families.hpp"
#include "planner/search_axes.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/stage_timeline.hpp"
#include "support.hpp"

namespace mgplan::planner::ranking_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Workload workload_on(std::int64_t world, const char* preset = "llama3.2-1b") {
    Workload work;
    work.model = formats::load_model(preset).model;
    work.cluster = load_cluster("dgx-h100");
    work.world = world;
    work.batch = {.global_batch = 4 * world, .sequence = 4096};
    work.memory_limit = work.cluster.memory_bytes;
    return work;
}

TEST(RankLayouts, ShardingsAreRankedInOneList) {
    const Workload work = testing::workload_of("qwen3-14b", 8, "dgx-h100", 128, 8192);
    SearchSpace space;
    space.engine = Engine::megatron;
    space.tp = {2, 4};
    space.cp = {1};
    space.micro_batch = {1, 2};
    const SearchSpace plain = space;
    space.shardings = more_shardings(work);
    RankingOptions options;
    options.bounded = true;
    options.headroom_bytes = work.memory_limit / 20;
    Workload divided = work;
    set_data_sharding_alone({DataSharding::full}, divided.training);
    EXPECT_EQ(kept_gradient_dtype(divided.training), Dtype::fp32) << "not Megatron-FSDP's own bf16";
    const Ranking both = rank_layouts(work, space, options), without = rank_layouts(work, plain, options),
                  alone = rank_layouts(divided, plain, options);
    EXPECT_EQ(both.search.counts.legal, without.search.counts.legal + alone.search.counts.legal);
    EXPECT_EQ(*both.search.fastest_seconds, std::min(*without.search.fastest_seconds, *alone.search.fastest_seconds));
    EXPECT_TRUE(std::is_sorted(both.search.best.begin(), both.search.best.end(),
                               [](const auto& a, const auto& b) { return a.iteration_seconds < b.iteration_seconds; }));
    const auto shards = [](const auto& ranked) { return ranked.layout.switches && ranked.layout.switches->sharding.has_value(); };
    const auto first = std::find_if(both.plans.begin(), both.plans.end(), shards);
    ASSERT_NE(first, both.plans.end());
    ASSERT_EQ(first->layout.switches->sharding, (DataShardingChoice{DataSharding::full, 1}));
    // It has the figures of the pinned sharding, also where the workload's own model predicts it.
    Layout own = first->layout;
    own.switches = nullptr;
    simulator::CostModel pinned(divided), all(work);
    const simulator::Prediction wanted = pinned.predict_exactly(own), found = all.predict_exactly(first->layout);
    EXPECT_EQ(alone.search.best.front().iteration_seconds, wanted.time.iteration_seconds);
    for (const simulator::Prediction& each : {found, first->prediction}) {
        EXPECT_EQ(each.time.iteration_seconds, wanted.time.iteration_seconds);
        EXPECT_EQ(each.memory.deciding_bytes(), wanted.memory.deciding_bytes());
    }
}

TEST(RankLayouts, PlansAreTheExactPredictionsOfTheBest) {
    const Workload work = workload_on(8);
    RankingOptions options;
    options.one_per_family = false;
    const Ranking ranking = rank_layouts(work, {}, options);
    ASSERT_THAT(ranking.plans, SizeIs(10));
    simulator::CostModel model(work);
    double before = 0;
    for (const PlannedLayout& plan : ranking.plans) {
        const RankedLayout& best = ranking.search.best.at(plan.rank - 1);
        EXPECT_EQ(plan.layout, best.layout);
        EXPECT_EQ(plan.prediction.time.iteration_seconds, model.predict_exactly(plan.layout).time.iteration_seconds);
        EXPECT_EQ(plan.prediction.time.iteration_seconds, best.iteration_seconds);
        EXPECT_TRUE(plan.prediction.memory.fits());
        EXPECT_GE(best.iteration_seconds, before);
        before = best.iteration_seconds;
    }
    EXPECT_EQ(ranking.search.fastest_is_proven, true);
}

TEST(RankLayouts, ARankIsOneLayoutsInEveryView) {
    // Microbatches enough that exact timelines of a hundred layouts are many passes, and families that begin far down the list.
    Workload work = workload_on(64, "llama3-70b");
    work.batch = {.global_batch = 512, .sequence = 8192};
    SearchSpace space;
    space.engine = Engine::megatron;
    RankingOptions options;
    options.headroom_bytes = 4'000'000'000;
    options.plans = 5;
    const Ranking families = rank_layouts(work, space, options);
    ASSERT_THAT(families.plans, SizeIs(::testing::Ge(2U)));
    ASSERT_GT(families.plans.back().rank, families.plans.size());
    options.one_per_family = options.predictions = false;
    options.plans = families.plans.back().rank + 1;
    const Ranking list = rank_layouts(work, space, options);
    for (const PlannedLayout& plan : families.plans) {
        EXPECT_EQ(list.search.best.at(plan.rank - 1).layout, plan.layout) << "rank " << plan.rank;
        const auto same = [&](const RankedLayout& each) { return same_family(each.layout, plan.layout); };
        EXPECT_EQ(std::find_if(list.search.best.begin(), list.search.best.end(), same) - list.search.best.begin(), plan.rank - 1)
            << "the fastest of its family";
    }
    EXPECT_EQ(list.search.feasible + list.search.too_large_replayed.count,
              families.search.feasible + families.search.too_large_replayed.count);
    options.plans = 5;
    options.ranks = 1'000'000'000;  // told by who asked for it; nothing is replayed for it
    EXPECT_LT(rank_layouts(work, space, options).search.best.size(), 1000U);
}

TEST(RankLayouts, ShowsTheFastestOfEachFamily) {
    const Workload work = workload_on(16);
    RankingOptions options;
    options.plans = 6;
    const Ranking families = rank_layouts(work, {}, options);
    options.one_per_family = false;
    options.ranks = 40;
    const Ranking apart = rank_layouts(work, {}, options);
    for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(apart.plans[i].rank, i + 1);
        EXPECT_THAT(apart.plans[i].others, IsEmpty());
    }
    // Families with a reason, among the first six.
    const auto expected = plan_families(apart.search.best, 6);
    ASSERT_THAT(expected, SizeIs(6));
    std::vector<PlannedLayout> fastest;
    simulator::CostModel model(work);
    for (const auto& family : expected) {
        const Layout& layout = apart.search.best[family.fastest].layout;
        fastest.push_back({layout, model.predict_exactly(layout)});
    }
    give_reasons(fastest, work);
    const std::vector<std::size_t> shown = shown_plans(fastest, 6);
    ASSERT_THAT(families.plans, SizeIs(shown.size()));
    std::size_t others = 0;
    for (std::size_t i = 0; i < shown.size(); ++i) {
        const auto& family = expected[shown[i]];
        EXPECT_EQ(families.plans[i].rank, family.fastest + 1);
        EXPECT_EQ(families.plans[i].layout, apart.search.best[family.fastest].layout);
        for (std::size_t k = 0; k < families.plans[i].others.size(); ++k) EXPECT_EQ(families.plans[i].others[k], family.others.at(k) + 1);
        others += families.plans[i].others.size();
    }
    EXPECT_GT(others, 0U) << "or the test shows nothing";
    EXPECT_GT(families.plans.back().rank, families.plans.size());
}

TEST(RankLayouts, TheOrderAloneNeedsNoPredictions) {
    const Workload work = workload_on(8);
    RankingOptions options;
    options.predictions = false;
    const Ranking order = rank_layouts(work, {}, options), whole = rank_layouts(work);
    EXPECT_THAT(order.plans, IsEmpty());
    ASSERT_EQ(order.search.best.size(), whole.search.best.size());
    for (std::size_t i = 0; i < order.search.best.size(); ++i) EXPECT_EQ(order.search.best[i].layout, whole.search.best[i].layout);
}

TEST(RankLayouts, KeepsAsManyRanksAsAreAskedFor) {
    RankingOptions options;
    options.plans = 1;
    options.one_per_family = options.predictions = false;
    EXPECT_THAT(rank_layouts(workload_on(8), {}, options).search.best, SizeIs(1));
    options.ranks = 7;
    EXPECT_THAT(rank_layouts(workload_on(8), {}, options).search.best, SizeIs(7));
}

TEST(RankLayouts, SaysHowManyOfTheWantedAreCertain) {
    RankingOptions options;
    options.plans = 12;
    options.predictions = false;
    options.replaying_every = std::chrono::milliseconds(0);
    std::vector<std::pair<std::size_t, std::size_t>> said;
    options.replaying = [&](std::size_t done, std::size_t wanted) { said.emplace_back(done, wanted); };
    SearchSpace space;
    space.engine = Engine::megatron;
    for (const bool one_per_family : {true, false}) {
        options.one_per_family = one_per_family;
        said.clear();
        (void)rank_layouts(workload_on(8), space, options);
        ASSERT_THAT(said, ::testing::Not(IsEmpty()));
        for (const auto& [done, wanted] : said) {
            EXPECT_EQ(wanted, 12U);
            EXPECT_LE(done, wanted) << "families, however many layouts these have";
        }
        EXPECT_GT(said.back().first, 9U);
    }
}

TEST(RankLayouts, BalancesStagesWhereAsked) {
    const Workload work = workload_on(16, "llama3-8b");
    SearchSpace space;
    space.pp = {4};
    RankingOptions options;
    EXPECT_EQ(rank_layouts(work, space, options).balanced.tried, 0U);
    options.balance_stages = true;
    const Ranking ranking = rank_layouts(work, space, options);
    EXPECT_GT(ranking.balanced.tried, 0U);
    EXPECT_EQ(ranking.balanced.seconds_before.size(), ranking.balanced.faster);
    for (const PlannedLayout& plan : ranking.plans) {
        const auto found = ranking.balanced.seconds_before.find(plan.layout.split.get());
        if (found != ranking.balanced.seconds_before.end()) {
            EXPECT_LT(plan.prediction.time.iteration_seconds, found->second);
        }
    }
}

TEST(RankLayouts, TriesSchedulesWithDividedBackwards) {
    const Workload work = workload_on(16, "llama3-8b");
    SearchSpace space;
    space.pp = {2, 4};
    RankingOptions options;
    options.one_per_family = false;
    const double before = rank_layouts(work, space, options).search.fastest_seconds.value();
    options.schedules = {SplitSchedule::zb_h1, SplitSchedule::v_half};
    options.only_schedules = true;
    const Ranking ranking = rank_layouts(work, space, options);
    ASSERT_THAT(ranking.schedules, SizeIs(2));
    ASSERT_THAT(ranking.plans, SizeIs(10));
    simulator::CostModel model(work);
    for (const PlannedLayout& plan : ranking.plans) {
        ASSERT_TRUE(plan.layout.schedule);
        EXPECT_EQ(plan.layout.vpp, chunks_of(*plan.layout.schedule));
        EXPECT_EQ(plan.layout.split->v_shaped(), is_v_shaped(*plan.layout.schedule));
        EXPECT_EQ(plan.prediction.time.iteration_seconds, model.exact_seconds(plan.layout));
        EXPECT_TRUE(plan.prediction.memory.fits());
        // What the runtime's own layers hold on shapes, pass by pass.
        simulator::StageTimelines timelines(work, plan.layout, simulator::kernels_of(work.cluster), {});
        std::int64_t most = 0;
        for (int stage = 0; stage < static_cast<int>(plan.layout.sizes.pp); ++stage)
            most = std::max(most, timelines.of(stage, false).value().memory.use.peak);
        EXPECT_EQ(plan.prediction.memory.worst.framework_bytes, most);
    }
    for (const ScheduleGain& gain : ranking.schedules) {
        EXPECT_GT(gain.fit, 0U) << gain.why_not;
        EXPECT_LE(gain.fit, gain.tried);
        EXPECT_EQ(gain.seconds_before, before);
    }
    EXPECT_EQ(ranking.search.fastest_seconds, std::min(*ranking.schedules[0].seconds, *ranking.schedules[1].seconds));
    options.only_schedules = false;
    options.plans = 30;
    const Ranking both = rank_layouts(work, space, options);
    EXPECT_EQ(both.search.fastest_seconds, std::min(before, ranking.search.fastest_seconds.value()));
}

TEST(RankLayouts, CollectsFamiliesAndParetoSetOfAllSchedulesTried) {
    const Workload work = workload_on(16, "llama3-8b");
    SearchSpace space;
    space.tp = {2};
    space.pp = {4};
    RankingOptions options;
    options.families = options.pareto = true;
    const SearchResult base = rank_layouts(work, space, options).search;
    options.schedules = {SplitSchedule::zb_h1, SplitSchedule::v_half};
    const Ranking ranking = rank_layouts(work, space, options);
    const SearchResult& both = ranking.search;
    const auto members = [](const SearchResult& found) {
        std::int64_t sum = 0;
        for (const FamilyPoint& family : found.families) sum += family.members;
        return sum;
    };
    std::int64_t fit = 0;
    for (const ScheduleGain& gain : ranking.schedules) fit += static_cast<std::int64_t>(gain.fit);
    ASSERT_GT(fit, 0);
    EXPECT_EQ(members(both), members(base) + fit);
    for (const RankedLayout& each : both.best) {
        if (!each.layout.schedule) continue;
        const auto is_no_worse = [&](const RankedLayout& one) {
            return one.iteration_seconds <= each.iteration_seconds && one.peak_bytes <= each.peak_bytes;
        };
        const auto of_family = std::find_if(both.families.begin(), both.families.end(),
                                            [&](const FamilyPoint& family) { return same_family(family.fastest.layout, each.layout); });
        ASSERT_NE(of_family, both.families.end());
        EXPECT_LE(of_family->fastest.iteration_seconds, each.iteration_seconds);
        EXPECT_TRUE(std::any_of(both.pareto.begin(), both.pareto.end(), is_no_worse));
    }
}

TEST(RankLayouts, SaysWhatKeepsAScheduleFromEveryLayout) {
    const Workload work = workload_on(8);  // tied embeddings
    SearchSpace space;
    space.pp = {2};
    RankingOptions options;
    options.schedules = {SplitSchedule::zb_v};
    const Ranking ranking = rank_layouts(work, space, options);
    EXPECT_EQ(ranking.schedules.front().fit, 0U);
    EXPECT_THAT(ranking.schedules.front().why_not, HasSubstr("schedule zb-v with tied embeddings"));
    EXPECT_FALSE(ranking.plans.empty()) << "the schedules of Megatron-LM are left";
}

TEST(RankLayouts, OfSchedulesAloneTheNearestMissesHaveThem) {
    Workload work = workload_on(8);  // tied embeddings, which keep zb-v from running
    work.memory_limit = std::int64_t{1} << 20;
    SearchSpace space;
    space.pp = {2, 4};
    RankingOptions options;
    options.only_schedules = true;
    options.schedules = {SplitSchedule::zb_v};
    const Ranking none = rank_layouts(work, space, options);
    EXPECT_TRUE(none.plans.empty());
    EXPECT_THAT(none.search.nearest, IsEmpty()) << "those of other schedules are no answer";
    options.schedules = {SplitSchedule::zb_h1};
    const Ranking ranking = rank_layouts(work, space, options);
    EXPECT_TRUE(ranking.plans.empty());
    EXPECT_GT(ranking.schedules.front().tried, 0U);
    EXPECT_EQ(ranking.schedules.front().why_not, "");
    ASSERT_THAT(ranking.search.nearest, Not(IsEmpty()));
    for (std::size_t i = 0; i < ranking.search.nearest.size(); ++i) {
        const RankedLayout& miss = ranking.search.nearest[i];
        EXPECT_EQ(miss.layout.schedule, SplitSchedule::zb_h1);
        EXPECT_GT(miss.peak_bytes, work.memory_limit);
        if (i > 0) {
            EXPECT_GE(miss.peak_bytes, ranking.search.nearest[i - 1].peak_bytes);
        }
    }
    space.pp = {1};
    EXPECT_EQ(rank_layouts(work, space, options).schedules.front().why_not, "no layout with pp > 1 fits, or misses by little");
}

/// The search asks the given cost model, so that tests may search with one of their own.
TEST(RankLayouts, TakesAnotherCostModel) {
    const Workload work = workload_on(8);
    RankingOptions options;
    options.plans = 1;
    options.cost_model = [](const Workload&) {
        return LayoutCost{[](const Layout& layout, std::int64_t) { return MemoryNeed(layout.sizes.tp == 4 ? 1 : std::int64_t{1} << 60); },
                          [](const Layout&) { return TimeEstimate(1.0); }};
    };
    const Ranking ranking = rank_layouts(work, {}, options);
    for (const RankedLayout& ranked : ranking.search.best) EXPECT_EQ(ranked.layout.sizes.tp, 4);
    EXPECT_GT(ranking.search.too_large, 0);
}

TEST(RankLayouts, SaysWhatStandsInTheWayOfEveryLayout) {
    SearchSpace space;
    space.tp = {3};
    try {
        (void)rank_layouts(workload_on(8), space);
        FAIL() << "no layout has tp = 3 on 8 GPUs";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("tp"));
    }
}

TEST(RankLayouts, NamesTheNearestWhereNothingFits) {
    const Ranking ranking = rank_layouts(workload_on(8, "llama3.1-405b"));
    EXPECT_THAT(ranking.plans, IsEmpty());
    EXPECT_THAT(ranking.search.best, IsEmpty());
    EXPECT_FALSE(ranking.search.nearest.empty());
}

}  // namespace
}  // namespace mgplan::planner::ranking_test
