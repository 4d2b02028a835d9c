#include "planner/alike_plans.hpp"

#include <memory>

#include <gtest/gtest.h>

namespace mgplan::planner::alike_plans_test {
namespace {

using Found = std::vector<AlikePlans>;

TEST(AlikePlans, AreEqualButForTheExchangeAndNearInTimeAndBytes) {
    const auto plan = [](std::int64_t tp, CpCommType kind, double seconds, std::int64_t bytes) {
        RankedLayout ranked;
        ranked.layout.sizes.tp = tp;
        ranked.layout.sizes.cp = 2;
        ranked.layout.cp_comm_type = kind;
        ranked.iteration_seconds = seconds;
        ranked.peak_bytes = bytes;
        return ranked;
    };
    const std::vector<RankedLayout> best{plan(1, CpCommType::p2p, 1.000, 1000),        plan(1, CpCommType::all_gather, 1.005, 1000),
                                         plan(2, CpCommType::p2p, 1.006, 1000),        plan(1, CpCommType::a2a, 1.009, 1100),
                                         plan(2, CpCommType::all_gather, 1.030, 1000), plan(4, CpCommType::p2p, 1.040, 1000)};
    EXPECT_EQ(alike_plans(best, 10), (Found{{0, {1}}, {2, {}}, {3, {}}, {4, {}}, {5, {}}}));
    EXPECT_EQ(alike_plans(best, 2), (Found{{0, {1}}, {2, {}}}));
    EXPECT_EQ(alike_plans({}, 2), Found{});
}

TEST(AlikePlans, MayInterleaveMoreOrFewerChunks) {
    const auto plan = [](int vpp) {
        RankedLayout ranked;
        ranked.layout.sizes.pp = 2;
        ranked.layout.vpp = vpp;
        StageSplitRequest request;
        request.layers = 12;
        request.pp = 2;
        request.vpp = vpp;
        ranked.layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
        ranked.iteration_seconds = 1;
        ranked.peak_bytes = 1000;
        return ranked;
    };
    const std::vector<RankedLayout> best{plan(6), plan(3), plan(1), plan(2)};
    EXPECT_EQ(alike_plans(best, 10), (Found{{0, {1, 3}}, {2, {}}})) << "1F1B is another schedule";
}

}  // namespace
}  // namespace mgplan::planner::alike_plans_test
