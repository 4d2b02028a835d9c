#include "simulator/price/pass_replay.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/simulator/price/written_steps.hpp"

namespace mgplan::simulator::pass_replay_test {
namespace {

GroupSeconds exposed_of(const PassSeconds& pass) {
    GroupSeconds sum;
    for (const GroupSeconds& each : pass.exposed) sum += each;
    return sum;
}

TEST(PassReplay, ExposesACollectiveThatIsWaitedForAtOnce) {
    const PassSeconds pass = replay({op(3), start(0, 4), wait(0), op(5, StepPass::recompute)}, written, 0.25);
    EXPECT_DOUBLE_EQ(pass.total, 12);
    EXPECT_DOUBLE_EQ(pass.compute[static_cast<std::size_t>(StepPass::forward)], 3);
    EXPECT_DOUBLE_EQ(pass.compute[static_cast<std::size_t>(StepPass::recompute)], 5);
    EXPECT_DOUBLE_EQ(exposed_of(pass).tp, 4);
}

TEST(PassReplay, TakesItsShareFromTheOpsBesideIt) {
    // 4 s beside an op of 10 s cost a quarter of 4 s.
    EXPECT_DOUBLE_EQ(replay({start(0, 4), op(10), wait(0)}, written, 0.25).total, 11);
    // 20 s beside an op of 10 s, which is done in 10 / 0.75 s: the rest sticks out.
    EXPECT_DOUBLE_EQ(replay({start(0, 20), op(10), wait(0)}, written, 0.25).total, 20);
    EXPECT_DOUBLE_EQ(exposed_of(replay({start(0, 20), op(10), wait(0)}, written, 0.25)).tp, 10);
    EXPECT_DOUBLE_EQ(replay({start(0, 4), op(10), wait(0)}, written, 0).total, 10);
    EXPECT_DOUBLE_EQ(replay({start(0, 4), op(10), wait(0)}, written, 1).total, 14);
}

TEST(PassReplay, RunsCollectivesOfAGroupInTurnAndThoseOfOthersBesideThem) {
    EXPECT_DOUBLE_EQ(replay({start(0, 4), start(1, 4), wait(1)}, written, 0).total, 8);
    EXPECT_DOUBLE_EQ(replay({start(0, 4), start(1, 4, LayerGroup::cp), wait(1, LayerGroup::cp), wait(0)}, written, 0).total, 4);
    const PassSeconds pass = replay({start(0, 4), start(1, 6, LayerGroup::ep), wait(0), wait(1, LayerGroup::ep)}, written, 0);
    EXPECT_DOUBLE_EQ(exposed_of(pass).tp, 4);
    EXPECT_DOUBLE_EQ(exposed_of(pass).ep, 2);
}

TEST(PassReplay, TheCollectiveThatTakesMostSlowsTheOpsBesideIt) {
    const StepPrice half_over_cp = [](const PieceStep& step) { return step.group == LayerGroup::cp ? 0.5 : 0.25; };
    // 4 s beside both at half speed, then 4 s beside one at three quarters: 5 of 10 s are left.
    const PieceSteps steps{start(0, 8), start(1, 4, LayerGroup::cp), op(10), wait(0), wait(1, LayerGroup::cp)};
    const PassSeconds pass = replay(steps, written, half_over_cp);
    EXPECT_DOUBLE_EQ(pass.total, 8 + 5);
    EXPECT_DOUBLE_EQ(exposed_of(pass).cp, 2);
    EXPECT_DOUBLE_EQ(exposed_of(pass).tp, 1);
    // The same group in turn, each at its own cost.
    const StepPrice later_costs_more = [](const PieceStep& step) { return step.number == 0 ? 0.0 : 0.5; };
    EXPECT_DOUBLE_EQ(replay({start(0, 4), start(1, 4), op(10)}, written, later_costs_more).total, 4 + 4 + 4);
}

TEST(PassReplay, WaitsForAPartOfACollective) {
    EXPECT_DOUBLE_EQ(replay({start(0, 8), wait(0, LayerGroup::tp, 0.25), op(10), wait(0)}, written, 0).total, 12);
    EXPECT_DOUBLE_EQ(replay({start(0, 8), wait(0, LayerGroup::tp, 0.25), op(1), wait(0)}, written, 0).total, 8);
}

/// The same rules in steps of time: what the events jump over.
double in_small_steps(const PieceSteps& steps, double overlap_cost, double dt) {
    double now = 0;
    std::array<double, kLayerGroups> idle_at{};
    std::vector<std::pair<double, double>> spans;  // by number
    for (const PieceStep& step : steps) {
        if (step.kind == StepKind::start) {
            double& idle = idle_at[static_cast<std::size_t>(step.group)];
            const double begin = std::max(now, idle);
            idle = begin + written(step);
            spans.emplace_back(begin, idle);
        } else if (step.kind == StepKind::wait) {
            const auto [begin, end] = spans[static_cast<std::size_t>(step.number)];
            now = std::max(now, begin + step.share * (end - begin));
        } else {
            for (double left = written(step); left > 0; now += dt) {
                const bool beside = std::any_of(idle_at.begin(), idle_at.end(), [&](double idle) { return idle > now; });
                left -= dt * (beside ? 1 - overlap_cost : 1);
            }
        }
    }
    return now;
}

TEST(PassReplay, EqualsTheSameRulesInSmallSteps) {
    std::mt19937 random(17);
    for (int record = 0; record < 200; ++record) {
        const PieceSteps steps = random_steps(random);
        const double cost = 0.25 * static_cast<double>(random() % 3), dt = 1.0 / 128;
        const PassSeconds pass = replay(steps, written, cost);
        ASSERT_NEAR(pass.total, in_small_steps(steps, cost, dt), 30 * dt) << "record " << record;
        double sum = exposed_of(pass).total();
        for (const double seconds : pass.compute) sum += seconds;
        ASSERT_NEAR(pass.total, sum, 1e-9) << "record " << record;
    }
}

}  // namespace
}  // namespace mgplan::simulator::pass_replay_test
