// The least number of GPUs: which numbers are tried, and that none below the answer is skipped.

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "planner/least_world.hpp"
#include "planner/search_axes.hpp"
#include "planner/sharded_jobs.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::least_world_test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using Worlds = std::vector<std::int64_t>;

TEST(LeastWorld, TriesPowersOfTwoInsideANodeAndThenNodes) {
    EXPECT_THAT(worlds_of(workload_of("llama3-8b", 8, "dgx-h100").cluster, 32), ElementsAre(1, 2, 4, 8, 16, 24, 32));
    EXPECT_THAT(worlds_of(workload_of("llama3-8b", 8, "gb200-nvl72").cluster, 17), ElementsAre(1, 2, 4, 8, 12, 16));
    EXPECT_THAT(worlds_of(workload_of("llama3-8b", 8, "dgx-h100,gpus_per_node=6").cluster, 13), ElementsAre(1, 2, 4, 6, 12));
    EXPECT_THAT(worlds_of(workload_of("llama3-8b", 8, "dgx-h100").cluster, 3), ElementsAre(1, 2));
}

/// least_world() over multiples of 8, and the worlds that it judged.
struct Judged {
    std::optional<std::int64_t> least;
    Worlds worlds;

    Judged(const std::function<WorldFit(std::int64_t)>& judge, std::int64_t last) {
        Worlds all{1, 2, 4};
        for (std::int64_t world = 8; world <= last; world += 8) all.push_back(world);
        least = least_world(all, [&](std::int64_t world) {
            worlds.push_back(world);
            return judge(world);
        });
    }
};

TEST(LeastWorld, JudgesEveryWorldBelowTheAnswerOnce) {
    const Judged judged([](std::int64_t world) { return world >= 40 ? WorldFit::fits : WorldFit::too_large; }, 4096);
    EXPECT_EQ(judged.least, 40);
    EXPECT_THAT(judged.worlds, UnorderedElementsAre(1, 2, 4, 8, 16, 24, 32, 40, 64));
}

TEST(LeastWorld, FindsAWorldBelowOneThatDoesNotFit) {
    const Judged judged([](std::int64_t world) { return world == 24 || world >= 64 ? WorldFit::fits : WorldFit::too_large; }, 4096);
    EXPECT_EQ(judged.least, 24);
}

TEST(LeastWorld, LooksForTheFirstLegalWorldOfEachPowerOfTwo) {
    const Judged judged(
        [](std::int64_t world) {
            if (world % 3 != 0) return WorldFit::illegal;
            return world >= 72 ? WorldFit::fits : WorldFit::too_large;
        },
        4096);
    EXPECT_EQ(judged.least, 72);
    EXPECT_EQ(std::ranges::max(judged.worlds), 72) << "64 is illegal and 72 the first legal world from there on";
}

TEST(LeastWorld, JudgesTheWorldsAboveTheLastPowerOfTwo) {
    for (const std::int64_t last : {24, 31}) {
        const Judged judged([](std::int64_t world) { return world == 24 ? WorldFit::fits : WorldFit::too_large; }, last);
        EXPECT_EQ(judged.least, 24) << last;
        EXPECT_THAT(judged.worlds, ElementsAre(1, 2, 4, 8, 16, 24));
    }
}

TEST(LeastWorld, HasNoneWhereNothingFits) {
    const Judged judged([](std::int64_t) { return WorldFit::too_large; }, 64);
    EXPECT_EQ(judged.least, std::nullopt);
    EXPECT_THAT(judged.worlds, ElementsAre(1, 2, 4, 8, 16, 32, 64));
    EXPECT_EQ(Judged([](std::int64_t) { return WorldFit::illegal; }, 32).least, std::nullopt);
    EXPECT_EQ(least_world({}, [](std::int64_t) { return WorldFit::fits; }), std::nullopt);
}

/// A workload with what `change` sets.
template <class Change>
Workload changed(const std::string& model, std::int64_t world, Change change) {
    Workload work = workload_of(model, world);
    change(work.training);
    return work;
}

TEST(LeastStateBytes, NoLayoutHoldsFewer) {
    const auto as_it_is = [](TrainingSpec&) {};
    const Workload jobs[] = {
        changed("llama3.2-1b", 8, as_it_is),
        changed("deepseek-v2-lite", 8, as_it_is),
        changed("llama3.2-1b", 8, [](TrainingSpec& training) { training.precision = Precision::fp8; }),
        changed("qwen3-30b-a3b", 8, [](TrainingSpec& training) { training.precision = Precision::fp8; }),
        changed("llama3.2-1b", 8, [](TrainingSpec& training) { training.offload.optimizer = 1; }),
        changed("llama3.2-1b", 8, [](TrainingSpec& training) { training.distributed_optimizer = false; }),
    };
    for (const Workload& work : jobs) {
        SearchSpace space;
        space.engine = Engine::megatron;
        space.recompute = {Recompute::none, Recompute::full};
        space.micro_batch = {1};
        space.shardings = more_shardings(work);
        const std::int64_t least = least_state_bytes(work, space, simulator_cost_model());
        EXPECT_GT(least, 0);
        std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
        for (const ShardedJob& job : sharded_jobs(work, space)) {
            const LayoutCost cost = simulator_cost_model()(job.workload);
            CandidateCounts counts;
            for (const Layout& layout : candidates_of(job.workload, space, counts))
                smallest = std::min(smallest, cost.least_bytes(layout, space));
        }
        EXPECT_LE(least, smallest * work.world) << work.model.name;
        EXPECT_GT(2.3 * static_cast<double>(least), static_cast<double>(smallest * work.world)) << work.model.name << ": a bound of use";
    }
}

TEST(LeastWorld, ALayoutFitsWhereTheRankingHasOne) {
    const auto memory = [](double gib) { return static_cast<std::int64_t>(gib * (1 << 30)); };
    int fitting = 0;
    for (const std::int64_t limit : {memory(10), memory(14), memory(20), memory(40)}) {
        for (const std::int64_t world : {1, 2, 6, 8}) {
            Workload work = workload_of("llama3.2-1b", world, "dgx-h100", 48);
            work.memory_limit = limit;
            SearchSpace space;
            space.engine = Engine::megatron;
            space.cp = space.vpp = {1};
            widen(space, usual_axes(), work);
            RankingOptions options;
            options.bounded = true;
            options.headroom_bytes = memory(1);
            const Ranking ranking = rank_layouts(work, space, options);
            const bool fits = !ranking.plans.empty() && !ranking.search.headroom_missed;
            EXPECT_EQ(fitting_layout(work, space, options).has_value(), fits) << world << " GPUs, " << limit;
            const auto fastest = first_layout(work, space, options).plan, fast = fast_layout(work, space, options);
            ASSERT_EQ(fastest.has_value(), fits);
            ASSERT_EQ(fast.has_value(), fits);
            if (!fits) continue;
            ++fitting;
            EXPECT_EQ(fastest->layout, ranking.search.best.front().layout);
            EXPECT_EQ(fastest->prediction.time.iteration_seconds, ranking.search.best.front().iteration_seconds);
            EXPECT_LE(fastest->prediction.memory.deciding_bytes(), limit - memory(1));
            EXPECT_EQ(fastest->prediction.memory.limit_bytes, limit);
            EXPECT_EQ(fast->layout, fastest->layout) << "of a dense model";
        }
    }
    EXPECT_GT(fitting, 5);
    EXPECT_LT(fitting, 16);
}

TEST(LeastWorld, AFastLayoutOfExpertsIsNearTheFastest) {
    for (const std::int64_t world : {8, 16, 24}) {
        const Workload work = workload_of("qwen3-30b-a3b", world, "dgx-h100", 768);
        SearchSpace space;
        space.engine = Engine::megatron;
        space.cp = {1};
        widen(space, usual_axes(), work);
        RankingOptions options;
        options.bounded = true;
        const auto fastest = first_layout(work, space, options).plan, fast = fast_layout(work, space, options);
        ASSERT_TRUE(fastest && fast);
        EXPECT_GE(fast->prediction.time.iteration_seconds, fastest->prediction.time.iteration_seconds);
        EXPECT_LE(fast->prediction.time.iteration_seconds, 1.1 * fastest->prediction.time.iteration_seconds) << world;
    }
}

TEST(LeastWorld, RefusesAJobWithoutLegalLayouts) {
    const Workload work = workload_of("llama3.2-1b", 8);
    SearchSpace space;
    space.tp = {3};
    EXPECT_THROW((void)fitting_layout(work, space, {}), ConfigError);
    EXPECT_THROW((void)fast_layout(work, space, {}), ConfigError);
}

}  // namespace
}  // namespace mgplan::planner::testing::least_world_test
