// The replay of a pass against SimGrid, whose own clock runs the same streams.

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/price/pass_replay.hpp"
#include "tests/simulator/price/stream_simulation.hpp"
#include "tests/simulator/price/written_steps.hpp"

namespace mgplan::simulator::stream_oracle_test {
namespace {

TEST(StreamOracle, TwoHundredRandomPassesEndWhenSimGridSays) {
    std::mt19937 random(20);
    std::vector<WrittenPass> passes;
    for (int pass = 0; pass < 200; ++pass) {
        const double cost = 0.25 * static_cast<double>(random() % 4);
        passes.push_back({random_steps(random), cost});
    }
    const std::vector<double> simulated = simulated_seconds(passes);
    int overlapped = 0;
    for (std::size_t i = 0; i < passes.size(); ++i) {
        const PassSeconds pass = replay(passes[i].steps, written, passes[i].overlap_cost);
        EXPECT_NEAR(pass.total, simulated[i], 1e-6) << "pass " << i;
        double alone = 0;
        for (const PieceStep& step : passes[i].steps) alone += step.kind == StepKind::wait ? 0 : written(step);
        overlapped += simulated[i] < alone ? 1 : 0;
    }
    EXPECT_GT(overlapped, 150) << "passes in which something ran beside something";
}

TEST(StreamOracle, KnowsAWaitForHalfACollective) {
    EXPECT_NEAR(simulated_seconds({{{start(0, 8), wait(0, LayerGroup::tp, 0.25), op(10), wait(0)}, 0}}).front(), 12, 1e-9);
    EXPECT_NEAR(simulated_seconds({{{start(0, 4), op(10), wait(0)}, 0.25}}).front(), 11, 1e-9);
}

}  // namespace
}  // namespace mgplan::simulator::stream_oracle_test
