#include "planner/plan_families.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "plan/layout/layout_switches.hpp"

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

TEST(PlanFamilies, OfDispatchersThatTakeAsLongAreOneRow) {
    const auto with = [](TokenDispatcher dispatcher, double seconds, std::int64_t bytes, bool overlap_tp) {
        RankedLayout ranked = plan(2, 4);
        LayoutSwitches switches;
        switches.dispatcher = dispatcher;
        switches.overlap_tp = overlap_tp;
        ranked.layout.switches = std::make_shared<const LayoutSwitches>(switches);
        ranked.iteration_seconds = seconds;
        ranked.peak_bytes = bytes;
        return ranked;
    };
    const auto deep = TokenDispatcher::deep_ep, hybrid = TokenDispatcher::hybrid_ep;
    constexpr std::int64_t kGib = std::int64_t{1} << 30;
    // What is slower of the second family is of the row, too.
    const std::vector<RankedLayout> best{with(deep, 1, 70 * kGib, true), with(hybrid, 1, 70 * kGib + 1, true),
                                         with(deep, 2, 70 * kGib, false), with(hybrid, 2, 70 * kGib, false)};
    EXPECT_EQ(plan_families(best, 10), (Found{{0, {1, 2, 3}}}));
    for (const RankedLayout& other :
         {with(hybrid, 1.001, 70 * kGib, true), with(hybrid, 1, 71 * kGib, true), with(hybrid, 1, 70 * kGib, false)})
        EXPECT_EQ(plan_families(std::vector{best.front(), other}, 10), (Found{{0, {}}, {1, {}}}));
}

}  // namespace
}  // namespace mgplan::planner::plan_families_test
