#include "simulator/price/pass_replay.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace mgplan::simulator::pass_replay_test {
namespace {

/// Seconds stand in the steps' bytes.
double written(const PieceStep& step) {
    return static_cast<double>(step.kind == StepKind::op ? step.op.bytes_read : step.sent);
}

PieceStep op(std::int64_t seconds, StepPass pass = StepPass::forward) {
    PieceStep step;
    step.pass = pass;
    step.op.name = "add";
    step.op.bytes_read = seconds;
    return step;
}

PieceStep start(int number, std::int64_t seconds, LayerGroup group = LayerGroup::tp) {
    PieceStep step;
    step.kind = StepKind::start;
    step.number = number;
    step.group = group;
    step.sent = seconds;
    return step;
}

PieceStep wait(int number, LayerGroup group = LayerGroup::tp, double share = 1) {
    PieceStep step = PieceStep::wait_for(start(number, 0, group));
    step.share = share;
    return step;
}

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
    const auto draw = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
    for (int record = 0; record < 200; ++record) {
        PieceSteps steps;
        int started = 0;
        std::vector<std::pair<int, LayerGroup>> open;
        for (int i = 0; i < 30; ++i) {
            const int kind = draw(4);
            if (kind == 0) {
                const auto group = static_cast<LayerGroup>(draw(kLayerGroups));
                steps.push_back(start(started, 1 + draw(20), group));
                open.emplace_back(started++, group);
            } else if (kind == 1 && !open.empty()) {
                const auto [number, group] = open[static_cast<std::size_t>(draw(static_cast<int>(open.size())))];
                steps.push_back(wait(number, group, draw(2) == 0 ? 1 : 0.5));
            } else {
                steps.push_back(op(1 + draw(10)));
            }
        }
        const double cost = 0.25 * draw(3), dt = 1.0 / 1024;
        const PassSeconds pass = replay(steps, written, cost);
        ASSERT_NEAR(pass.total, in_small_steps(steps, cost, dt), 30 * dt) << "record " << record;
        double sum = exposed_of(pass).total();
        for (const double seconds : pass.compute) sum += seconds;
        ASSERT_NEAR(pass.total, sum, 1e-9) << "record " << record;
    }
}

}  // namespace
}  // namespace mgplan::simulator::pass_replay_test
