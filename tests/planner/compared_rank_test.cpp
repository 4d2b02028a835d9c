// Where a layout stands among those that fit.

#include <gtest/gtest.h>

#include "planner/ranking.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::compared_rank_test {
namespace {

TEST(ComparedRank, CountsTheLayoutsBeforeItWhateverTheThreads) {
    const Workload work = workload_of("llama3-8b", 16);
    for (const Objective objective : {Objective::throughput, Objective::memory}) {
        SearchOptions options;
        options.keep = 1'000'000;
        options.objective = objective;
        const SearchResult all = search(work, {}, simulator_cost_model(), options);
        ASSERT_GT(all.best.size(), 2000U);
        options.keep = 3;
        for (const std::size_t place : {std::size_t{0}, std::size_t{700}, all.best.size() - 1}) {
            options.compared = all.best[place].layout;
            for (const int threads : {1, 4}) {
                options.threads = threads;
                EXPECT_EQ(search(work, {}, simulator_cost_model(), options).before_compared, static_cast<std::int64_t>(place));
            }
        }
    }
}

TEST(ComparedRank, IsThatOfTheRankingWhereItReaches) {
    const Workload work = workload_of("llama3-8b", 16);
    RankingOptions options;
    options.plans = 10;
    options.one_per_family = false;
    const Ranking plain = rank_layouts(work, {}, options);
    for (const std::size_t place : {std::size_t{0}, std::size_t{4}}) {
        options.compared = plain.plans[place].layout;
        const Ranking ranking = rank_layouts(work, {}, options);
        EXPECT_EQ(ranking.compared.rank, place + 1);
        EXPECT_TRUE(ranking.compared.exact);
    }
    // One that no search would try for its chunks still has a place; one that is too large has none.
    Layout outside = plain.plans[0].layout;
    outside.micro_batch = 1;
    outside.num_microbatches = work.batch.global_batch / outside.dp();
    outside.recompute = Recompute::full;
    outside.recompute_modules = {};
    outside.recompute_method = RecomputeMethod::uniform;
    outside.recompute_num_layers = 7;
    options.compared = outside;
    const ComparedRank rank = rank_layouts(work, {}, options).compared;
    EXPECT_GT(rank.rank, 10U);
    EXPECT_FALSE(rank.exact);
    Workload small = work;
    small.memory_limit = std::int64_t{30} << 30;
    ASSERT_GT(plain.plans[0].prediction.memory.deciding_bytes(), small.memory_limit);
    options.compared = plain.plans[0].layout;
    EXPECT_EQ(rank_layouts(small, {}, options).compared.rank, 0U);
}

}  // namespace
}  // namespace mgplan::planner::testing::compared_rank_test
