// Reasons for which a table shows plans.

#include "planner/plan_reasons.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/planned_layout.hpp"
#include "support.hpp"

namespace mgplan::planner::testing::plan_reasons_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

PlannedLayout plan(double seconds, double adverse_seconds, std::int64_t bytes, std::int64_t tp, std::int64_t pp, std::int64_t ep = 1) {
    PlannedLayout planned;
    planned.layout.sizes.world = 64;
    planned.layout.sizes.tp = tp;
    planned.layout.sizes.pp = pp;
    planned.layout.sizes.ep = ep;
    planned.prediction.time.iteration_seconds = seconds;
    planned.prediction.time.adverse_seconds = adverse_seconds;
    planned.prediction.memory.worst.breakdown.parameters = bytes;
    return planned;
}

/// The reasons of each plan in words, "recommended" last.
std::vector<std::vector<std::string>> words_of(std::vector<PlannedLayout> plans, const Workload& work) {
    give_reasons(plans, work);
    std::vector<std::vector<std::string>> words;
    for (const PlannedLayout& plan : plans) {
        words.emplace_back();
        for (const PlanReason reason : plan.why) words.back().emplace_back(to_string(reason));
        if (plan.recommended) words.back().emplace_back("recommended");
    }
    return words;
}

TEST(PlanReasons, BelongToTheFirstPlanOfWhichTheyAreTrue) {
    const Workload work = workload_of("llama3-8b", 64);
    EXPECT_THAT(words_of({plan(1, 1.1, 70, 2, 4), plan(1.02, 1.2, 75, 1, 2), plan(1.04, 1.2, 60, 4, 1), plan(1.1, 1.3, 60, 1, 1)}, work),
                ElementsAre(ElementsAre("fastest", "steadiest", "recommended"), ElementsAre("simplest"),
                            ElementsAre("most-free-memory", "no-pipeline"), IsEmpty()));
    EXPECT_THAT(words_of({plan(1, 1, 70, 1, 1)}, work),
                ElementsAre(ElementsAre("fastest", "steadiest", "most-free-memory", "simplest", "no-pipeline", "recommended")));
    EXPECT_THAT(words_of({}, work), IsEmpty());
}

TEST(PlanReasons, RecommendTheSteadiestOfTheAlmostFastest) {
    const Workload work = workload_of("llama3-8b", 64);
    EXPECT_THAT(words_of({plan(1, 1.5, 70, 1, 2), plan(1.03, 1.2, 75, 2, 2), plan(1.04, 1.1, 76, 2, 4)}, work),
                ElementsAre(ElementsAre("fastest", "most-free-memory", "simplest"), ElementsAre("recommended"), ElementsAre("steadiest")));
}

TEST(PlanReasons, KnowExpertsInsideAnNvlinkDomain) {
    const Workload work = workload_of("qwen3-30b-a3b", 64);  // 8 GPUs in a domain
    EXPECT_THAT(words_of({plan(1, 1, 70, 1, 2, 16), plan(1.2, 2, 80, 2, 2, 8), plan(1.3, 2, 81, 2, 2, 4)}, work),
                ElementsAre(ElementsAre("fastest", "steadiest", "most-free-memory", "simplest", "recommended"),
                            ElementsAre("experts-in-nvlink-domain"), IsEmpty()));
    EXPECT_THAT(words_of({plan(1, 1, 70, 1, 2, 1)}, work),
                ElementsAre(ElementsAre("fastest", "steadiest", "most-free-memory", "simplest", "recommended")));
}

TEST(PlanReasons, KnowTheSizesOfARecipe) {
    const Workload work = workload_of("qwen3-30b-a3b", 64);
    std::vector<PlannedLayout> plans{plan(1, 1, 70, 1, 2, 16), plan(1.2, 2, 80, 2, 2, 8), plan(1.3, 2, 81, 2, 2, 8)};
    give_reasons(plans, work);
    EXPECT_TRUE(mark_recipe(plans, {.tp = 2, .ep = 8, .pp = 2}));
    EXPECT_FALSE(mark_recipe(plans, {.tp = 4}));
    EXPECT_THAT(plans[1].why, ElementsAre(PlanReason::experts_in_nvlink_domain, PlanReason::like_nvidia_recipe));
    EXPECT_THAT(plans[2].why, IsEmpty()) << "the faster one has it";
    const RecipeSizes divided{.tp = 2, .ep = 8, .etp = 2, .pp = 2}, dense{.tp = 2, .etp = 2, .pp = 2};
    EXPECT_FALSE(divided.are_of(plans[1].layout.sizes));
    EXPECT_TRUE(dense.are_of(plan(1, 1, 70, 2, 2).layout.sizes)) << "etp has no meaning without experts";
}

TEST(PlanReasons, DecideWhichPlansATableShows) {
    const Workload work = workload_of("qwen3-30b-a3b", 64);
    const auto shown = [&](std::vector<PlannedLayout> plans, std::size_t most = 10) {
        give_reasons(plans, work);
        return shown_plans(plans, most);
    };
    // The second and the fifth have no reason; the fourth alone has no pipeline.
    EXPECT_THAT(shown({plan(1, 1.2, 70, 2, 4), plan(1.05, 1.3, 70, 1, 4), plan(1.1, 1.3, 60, 4, 2), plan(1.2, 1.3, 75, 4, 1),
                       plan(1.3, 1.4, 60, 2, 2)}),
                ElementsAre(0U, 2U, 3U));
    // Seven have a reason or are recommended; the last two reasons are without a row.
    EXPECT_THAT(shown({plan(1, 2, 70, 2, 4), plan(1.01, 1.9, 70, 2, 4), plan(1.02, 2, 70, 1, 4), plan(1.1, 1.5, 70, 2, 4),
                       plan(1.2, 2, 60, 2, 4), plan(1.3, 2, 70, 2, 1), plan(1.4, 2, 70, 2, 4, 8)}),
                ElementsAre(0U, 1U, 2U, 3U, 4U));
    EXPECT_THAT(shown({plan(1, 2, 70, 2, 4), plan(1.01, 1.9, 70, 2, 4), plan(1.2, 2, 60, 2, 4)}, 1), ElementsAre(0U, 1U));
}

}  // namespace
}  // namespace mgplan::planner::testing::plan_reasons_test
