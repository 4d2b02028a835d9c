// Reasons for which a table shows plans.

#include "planner/plan_reasons.hpp"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace mgplan::planner::testing::plan_reasons_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RankedLayout plan(double seconds, std::int64_t bytes, std::int64_t tp, std::int64_t pp, std::int64_t ep = 1) {
    RankedLayout ranked;
    ranked.layout.sizes.world = 64;
    ranked.layout.sizes.tp = tp;
    ranked.layout.sizes.pp = pp;
    ranked.layout.sizes.ep = ep;
    ranked.iteration_seconds = seconds;
    ranked.peak_bytes = bytes;
    return ranked;
}

/// The reasons of each plan in words.
std::vector<std::vector<std::string>> words_of(const std::vector<RankedLayout>& plans, const Workload& work) {
    std::vector<std::vector<std::string>> words;
    for (const auto& reasons : reasons_of(plans, work)) {
        words.emplace_back();
        for (const PlanReason reason : reasons) words.back().emplace_back(to_string(reason));
    }
    return words;
}

TEST(PlanReasons, BelongToTheFirstPlanOfWhichTheyAreTrue) {
    const Workload work = workload_of("llama3-8b", 64);
    const std::vector<RankedLayout> plans{plan(1, 70, 2, 4), plan(1.02, 75, 1, 2), plan(1.04, 60, 4, 1), plan(1.1, 60, 1, 1)};
    EXPECT_THAT(words_of(plans, work),
                ElementsAre(ElementsAre("fastest"), ElementsAre("simplest"), ElementsAre("most-free-memory", "no-pipeline"), IsEmpty()));
    EXPECT_THAT(words_of({plan(1, 70, 1, 1)}, work), ElementsAre(ElementsAre("fastest", "most-free-memory", "simplest", "no-pipeline")));
    EXPECT_THAT(words_of({}, work), IsEmpty());
}

TEST(PlanReasons, KnowExpertsInsideAnNvlinkDomain) {
    const Workload work = workload_of("qwen3-30b-a3b", 64);  // 8 GPUs in a domain
    EXPECT_THAT(words_of({plan(1, 70, 1, 2, 16), plan(1.2, 80, 2, 2, 8), plan(1.3, 81, 2, 2, 4)}, work),
                ElementsAre(ElementsAre("fastest", "most-free-memory", "simplest"), ElementsAre("experts-in-nvlink-domain"), IsEmpty()));
    EXPECT_THAT(words_of({plan(1, 70, 1, 2, 1)}, work), ElementsAre(ElementsAre("fastest", "most-free-memory", "simplest")));
}

TEST(PlanReasons, LeaveOutWhatAFasterPlanOfLessMemoryDominates) {
    const Workload work = workload_of("llama3-8b", 64);
    // The second needs no less than the first, the fifth no less than the third; the fourth alone has no pipeline.
    EXPECT_THAT(
        shown_plans(std::vector{plan(1, 70, 2, 4), plan(1.05, 70, 1, 4), plan(1.1, 60, 4, 2), plan(1.2, 75, 4, 1), plan(1.3, 60, 2, 2)},
                    work),
        ElementsAre(0U, 2U, 3U));
}

}  // namespace
}  // namespace mgplan::planner::testing::plan_reasons_test
