#include "plan/layout/rank_groups.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/layout/stage_ranks.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::rank_groups_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

ParallelSizes sizes_of(std::int64_t world, std::int64_t tp, std::int64_t cp, std::int64_t ep, std::int64_t etp, std::int64_t pp,
                       const char* order = "tp-cp-ep-dp-pp") {
    ParallelSizes sizes;
    sizes.world = world;
    sizes.tp = tp;
    sizes.cp = cp;
    sizes.ep = ep;
    sizes.etp = etp;
    sizes.pp = pp;
    sizes.order = AxisOrder::parse(order);
    return sizes;
}

std::string message_of(const char* order) {
    try {
        (void)AxisOrder::parse(order);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(AxisOrder, ReadsAnyCaseAndLeavesOutAxes) {
    EXPECT_EQ(AxisOrder::parse("TP-Cp-eP-dp-PP"), AxisOrder());
    const AxisOrder order = AxisOrder::parse("dp-pp-tp");
    EXPECT_EQ(order.text(), "dp-pp-tp");
    EXPECT_EQ(order.named(), 3U);
    EXPECT_FALSE(order.ends_in_pp());
    EXPECT_EQ(AxisOrder::parse(order.text()), order);
}

TEST(AxisOrder, RefusesUnknownRepeatedAndEmptyAxes) {
    EXPECT_THAT(message_of("tp-xx-dp"), HasSubstr("unknown axis 'xx'"));
    EXPECT_THAT(message_of("tp-xx-dp"), HasSubstr("    tp-xx-dp\n       ^"));
    EXPECT_THAT(message_of("tp-dp-TP"), HasSubstr("names tp twice"));
    EXPECT_THAT(message_of(""), HasSubstr("order is empty"));
    EXPECT_THAT(message_of("tp--dp"), HasSubstr("unknown axis ''"));
    EXPECT_THAT(message_of(std::string(100'000, 'x').c_str()), HasSubstr("unknown axis"));
    EXPECT_LT(message_of(std::string(100'000, '-').c_str()).size(), 100'000U);
}

TEST(RankGroups, TensorGroupsAreNeighboursAndPipelinesStrideOverTheRest) {
    const RankGroups groups(sizes_of(16, 4, 1, 1, 4, 2));
    EXPECT_THAT(groups.at("tp")[0], ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(groups.at("dp")[1], ElementsAre(1, 5));
    EXPECT_THAT(groups.at("pp")[7], ElementsAre(7, 15));
    EXPECT_THAT(groups.at("tp-pp")[1], ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
    EXPECT_EQ(groups.at("cp").count(), 16U);
    EXPECT_THROW((void)groups.at("zp"), std::out_of_range);
}

TEST(RankGroups, ExpertGridFoldsContextRanksIntoExpertData) {
    const RankGroups groups(sizes_of(16, 2, 2, 4, 1, 2));
    EXPECT_EQ(groups.sizes().dp(), 2);
    EXPECT_EQ(groups.sizes().edp(), 2);
    EXPECT_THAT(groups.at("expert:ep")[0], ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(groups.at("expert:dp")[0], ElementsAre(0, 4));
}

TEST(RankGroups, EmbeddingIsSharedByFirstAndLastStage) {
    const RankGroups four(sizes_of(8, 2, 1, 1, 2, 4));
    EXPECT_THAT(four.at("embedding")[0], ElementsAre(0, 6));
    EXPECT_THAT(four.at("position_embedding")[1], ElementsAre(1));
    const RankGroups one(sizes_of(2, 1, 1, 1, 1, 1));
    EXPECT_THAT(one.at("embedding")[1], ElementsAre(1));
}

TEST(RankGroups, OptimizerInstancesCutDataGroups) {
    ParallelSizes sizes = sizes_of(8, 1, 1, 1, 1, 1);
    sizes.optimizer_instances = 2;
    const RankGroups groups(sizes);
    EXPECT_THAT(groups.at("intra_partial:dp-cp")[1], ElementsAre(4, 5, 6, 7));
    EXPECT_THAT(groups.at("inter_partial:expert:dp")[1], ElementsAre(1, 5));
}

TEST(RankGroups, OfDocumentsAreOfEachPowerOfTwoOfTheRanks) {
    // parallel_state.py, create_hybrid_dp_cp_groups: of 8 ranks groups of 2 and 4, in the order of dp-cp; one and all have groups of their
    // own.
    const RankGroups groups(sizes_of(16, 2, 2, 1, 1, 1), true);
    EXPECT_EQ(groups.at("hybrid:dp-cp-2").count(), 8U);
    EXPECT_THAT(groups.at("hybrid:dp-cp-2")[0], ElementsAre(0, 2)) << "ranks of one cp group";
    EXPECT_THAT(groups.at("hybrid:dp-cp-4")[1], ElementsAre(8, 10, 12, 14));
    EXPECT_THROW((void)groups.at("hybrid:dp-cp-8"), std::out_of_range);
    EXPECT_THROW((void)RankGroups(sizes_of(16, 2, 2, 1, 1, 1)).at("hybrid:dp-cp-2"), std::out_of_range);
    EXPECT_THROW(RankGroups(sizes_of(12, 2, 1, 1, 1, 1), true), ConfigError);
}

TEST(RankGroups, ReportEveryProblemWithItsWayOut) {
    EXPECT_THAT(problems(sizes_of(16, 3, 1, 5, 3, 1)),
                ElementsAre(HasSubstr("tp·cp·pp = 3·1·1 = 3 does not divide world = 16; choose sizes whose product is 1, 2, 4, 8 or 16"),
                            HasSubstr("etp·ep·pp = 3·5·1 = 15 does not divide world = 16")));
    EXPECT_THAT(problems(sizes_of(8, 16, 1, 1, 16, 1)), testing::Contains(HasSubstr("is larger than world = 8")));
    EXPECT_THAT(problems(sizes_of(0, 1, 0, 1, 1, 1)),
                ElementsAre("world = 0 is too small; use 1 or more", "cp = 0 is too small; use 1 or more"));
    EXPECT_THAT(problems(sizes_of(16, 2, 2, 1, 2, 2, "tp-pp-dp")), ElementsAre(HasSubstr("leaves out cp, but cp = 2")));
    EXPECT_THAT(problems(sizes_of(16, 2, 2, 1, 2, 2, "tp-cp-ep-pp-dp")),
                ElementsAre(HasSubstr("does not end in pp, which needs pp = 1 or dp = edp, but pp = 2, dp = 2 and edp = 4")));
    EXPECT_THAT(problems(sizes_of(16, 2, 2, 4, 1, 2, "tp-pp-cp-ep-dp")), ElementsAre(HasSubstr("the expert grid 1 apart")));
    ParallelSizes sizes = sizes_of(8, 2, 1, 1, 2, 1);
    sizes.optimizer_instances = 3;
    EXPECT_THAT(problems(sizes), ElementsAre(HasSubstr("does not divide dp·cp = 4; use 1, 2 or 4"), HasSubstr("does not divide edp = 4")));
}

TEST(RankGroups, RefuseWorldsTooLargeToList) {
    EXPECT_THROW(RankGroups(sizes_of(1'000'000'000, 1, 1, 1, 1, 1)), ConfigError);
    EXPECT_TRUE(problems(sizes_of(1'000'000'000, 1, 1, 1, 1, 1)).empty());
}

TEST(RankGroups, StateTheRulesForAnySizesWithoutOverflow) {
    const auto any = std::numeric_limits<std::int64_t>::max();
    EXPECT_EQ(first_grid_problem(sizes_of(any, any, any, any, any, any)), "world_not_divisible");
    EXPECT_EQ(first_grid_problem(sizes_of(std::numeric_limits<std::int64_t>::min(), -1, 0, 1, 1, 1)), "size_below_one");
    EXPECT_THAT(problems(sizes_of(any, 2, 1, 1, 2, 1)), SizeIs(2));
    EXPECT_TRUE(problems(sizes_of(any, any, 1, 1, any, 1)).empty());
}

/// Whether every group of one name holds ranks once, all of the world.
bool covers_the_world(const NamedGroups& named, std::int64_t world) {
    auto ranks = named.ranks;
    std::sort(ranks.begin(), ranks.end());
    std::vector<std::int32_t> all(static_cast<std::size_t>(world));
    std::iota(all.begin(), all.end(), 0);
    return ranks == all;
}

/// Whether each pipeline lies inside one replica of the experts: what sharing pp groups between the grids is for.
bool pipelines_lie_in_replicas(const RankGroups& groups) {
    const auto& replicas = groups.at("expert:tp-ep-pp");
    std::vector<std::size_t> replica_of(replicas.ranks.size());
    for (std::size_t i = 0; i < replicas.ranks.size(); ++i)
        replica_of[static_cast<std::size_t>(replicas.ranks[i])] = i / replicas.group_size;
    const auto& pipelines = groups.at("pp");
    for (std::size_t i = 0; i < pipelines.count(); ++i) {
        for (const auto rank : pipelines[i]) {
            if (replica_of[static_cast<std::size_t>(rank)] != replica_of[static_cast<std::size_t>(pipelines[i][0])]) return false;
        }
    }
    return true;
}

TEST(RankGroups, CheapAndWordedRulesAgreeAndFollowTheGroupsThemselves) {
    constexpr std::array kOrders{"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-tp-cp-ep", "tp-pp-cp-ep-dp", "tp-dp-pp", "ep-tp-pp"};
    constexpr std::array<std::int64_t, 3> kSizes{1, 2, 3};
    std::map<std::string_view, int> seen;
    for (const std::int64_t world : {1, 6, 8, 12, 24, 36, 72}) {
        for (const char* order : kOrders) {
            for (int code = 0; code < 3 * 3 * 3 * 3 * 3; ++code) {
                const auto size = [&](int place) { return kSizes[static_cast<std::size_t>(code / place % 3)]; };
                ParallelSizes sizes = sizes_of(world, size(1), size(3), size(9), size(27), size(81), order);
                sizes.optimizer_instances = code % 5 == 0 ? 2 : 1;
                const auto problem = first_grid_problem(sizes);
                ASSERT_EQ(problems(sizes).empty(), !problem.has_value());
                ++seen[problem.value_or("none")];
                if (problem) continue;
                const RankGroups groups(sizes);
                for (const auto& named : groups.all()) {
                    if (named.name == "embedding" || named.name == "position_embedding") continue;
                    ASSERT_TRUE(covers_the_world(named, world)) << named.name << " " << order;
                }
                ASSERT_TRUE(pipelines_lie_in_replicas(groups)) << order;
            }
        }
    }
    for (const char* rule : {"none", "world_not_divisible", "expert_grid_not_divisible", "axis_missing_from_order", "order_needs_pp_last",
                             "grids_differ_in_pp_groups", "optimizer_instances_do_not_divide"}) {
        EXPECT_GT(seen[rule], 20) << rule;
    }
}

/// Whether group_of() answers for every rank of the world as the list does, in the same order of members.
void expect_lookups_equal_the_list(const RankGroups& groups) {
    const std::int64_t world = groups.sizes().world;
    for (const auto& named : groups.all()) {
        std::vector<std::vector<std::int32_t>> listed(static_cast<std::size_t>(world));
        for (std::size_t i = 0; i < named.count(); ++i) {
            for (const auto rank : named[i]) listed[static_cast<std::size_t>(rank)].assign(named[i].begin(), named[i].end());
        }
        for (std::int64_t rank = 0; rank < world; ++rank) {
            ASSERT_EQ(group_of(groups.sizes(), named.name, rank), listed[static_cast<std::size_t>(rank)])
                << named.name << " " << rank << " " << groups.sizes().order.text();
        }
    }
}

TEST(GroupOf, FindsEveryRanksGroupWithoutListingTheWorld) {
    int worlds = 0;
    for (const char* order : {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-tp-cp-ep", "dp-tp-cp-ep-pp"}) {
        for (int code = 0; code < 3 * 3 * 3 * 3 * 3; ++code) {
            const auto size = [&](int place) { return std::int64_t{1} + code / place % 3; };
            ParallelSizes sizes = sizes_of(72, size(1), size(3), size(9), size(27), size(81), order);
            sizes.optimizer_instances = code % 4 == 0 ? 2 : 1;
            if (first_grid_problem(sizes)) continue;
            expect_lookups_equal_the_list(RankGroups(sizes));
            ++worlds;
        }
    }
    EXPECT_GT(worlds, 300);
}

TEST(RankGroups, StagesFollowEachOtherInEveryPipeline) {
    for (const char* order : {"tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-tp-cp-ep", "dp-pp-tp-cp-ep"}) {
        for (const std::int64_t pp : {1, 2, 6}) {
            const ParallelSizes sizes = sizes_of(72, 3, 2, 1, 6, pp, order);
            const RankGroups groups(sizes);
            const NamedGroups& pipelines = groups.at("pp");
            for (std::int64_t stage = 0; stage < pp; ++stage) {
                EXPECT_EQ(first_rank_of_stage(sizes, stage), pipelines[0][static_cast<std::size_t>(stage)]) << order;
                for (std::size_t i = 0; i < pipelines.count(); ++i)
                    EXPECT_EQ(stage_of_rank(sizes, pipelines[i][static_cast<std::size_t>(stage)]), stage) << order;
            }
        }
    }
}

TEST(GroupOf, AnswersForARankOfAMillion) {
    const ParallelSizes sizes = sizes_of(std::int64_t{1} << 20, 8, 2, 8, 1, 16);
    EXPECT_THAT(group_of(sizes, "cp", 777'777), ElementsAre(777'777, 777'785));
    EXPECT_THAT(group_of(sizes, "pp", 777'777), SizeIs(16));
    EXPECT_EQ(group_of(sizes, "pp", 777'777).back(), 777'777 % 65'536 + 15 * 65'536);
    EXPECT_THROW((void)group_of(sizes, "zp", 0), std::out_of_range);
    EXPECT_THROW((void)group_of(sizes, "intra_partial:dp-cp", 0), std::out_of_range);
    EXPECT_THROW((void)group_of(sizes, "tp", sizes.world), std::logic_error);
}

TEST(RankGroups, GridsStrideInTheOrderGiven) {
    const auto dense = dense_grid(sizes_of(48, 2, 3, 1, 2, 2, "dp-tp-cp-pp"));
    ASSERT_THAT(dense, SizeIs(4));
    EXPECT_EQ(dense[0].axis, Axis::dp);
    EXPECT_EQ(dense[0].size, 4);
    EXPECT_EQ(dense[1].stride, 4);
    EXPECT_EQ(dense[2].stride, 8);
    EXPECT_EQ(dense[3].stride, 24);
    const auto expert = expert_grid(sizes_of(48, 2, 3, 4, 1, 2));
    ASSERT_THAT(expert, SizeIs(4));
    EXPECT_EQ(expert[1].axis, Axis::ep);
    EXPECT_EQ(expert[1].stride, 1);
    EXPECT_EQ(expert[2].size, 6);
}

}  // namespace
}  // namespace mgplan::rank_groups_test
