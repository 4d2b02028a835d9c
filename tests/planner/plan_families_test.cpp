#include "planner/plan_families.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace mgplan::planner::plan_families_test {
namespace {

using Found = std::vector<PlanFamily>;

RankedLayout plan(std::int64_t tp, int pp) {
    RankedLayout ranked;
    ranked.layout.sizes.tp = tp;
    ranked.layout.sizes.pp = pp;
    return ranked;
}

TEST(PlanFamilies, AreOfEqualSizesAndRecompute) {
    RankedLayout chunks = plan(2, 4), larger = plan(2, 4), recomputed = plan(2, 4), modules = plan(2, 4);
    chunks.layout.vpp = 5;
    larger.layout.micro_batch = 4;
    larger.layout.cp_comm_type = CpCommType::a2a;
    larger.layout.sequence_parallel = true;
    recomputed.layout.recompute = Recompute::selective;
    modules.layout.recompute = Recompute::selective;
    modules.layout.recompute_modules = {RecomputeModule::mlp};
    const std::vector<RankedLayout> best{plan(2, 4), plan(4, 2), chunks, recomputed, larger, modules, plan(4, 2)};
    EXPECT_EQ(plan_families(best, 10), (Found{{0, {2, 4}}, {1, {6}}, {3, {}}, {5, {}}}));
    EXPECT_EQ(plan_families(best, 2), (Found{{0, {2, 4}}, {1, {6}}})) << "members are counted to the end of the list";
    EXPECT_EQ(plan_families({}, 2), Found{});
    EXPECT_EQ(plan_families(best, 0), Found{});
}

}  // namespace
}  // namespace mgplan::planner::plan_families_test
