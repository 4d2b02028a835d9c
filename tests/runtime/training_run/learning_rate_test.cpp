#include "runtime/training_run/learning_rate.hpp"

#include <gtest/gtest.h>

namespace mgplan::runtime::learning_rate_test {
namespace {

using enum LearningRateDecay;

TEST(LearningRate, RisesFromZeroToTheMaximum) {
    for (const auto decay : {constant, linear, cosine}) {
        const LearningRateOptions options{0.4, 0.1, 4, 12, decay};
        for (int step = 0; step <= 4; ++step) EXPECT_DOUBLE_EQ(learning_rate(options, step), 0.1 * step);
    }
}

// Values of Megatron-LM's formulas worked out by hand: done = (step - 4) / 8.
TEST(LearningRate, FallsToTheMinimumAndStaysThere) {
    EXPECT_DOUBLE_EQ(learning_rate({0.4, 0.1, 4, 12, constant}, 1000), 0.4);
    EXPECT_DOUBLE_EQ(learning_rate({0.4, 0.1, 4, 12, linear}, 6), 0.1 + 0.75 * 0.3);
    EXPECT_DOUBLE_EQ(learning_rate({0.4, 0.1, 4, 12, linear}, 12), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate({0.4, 0.1, 4, 12, linear}, 13), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate({0.4, 0.1, 4, 12, cosine}, 8), 0.25);
    EXPECT_DOUBLE_EQ(learning_rate({0.4, 0.1, 4, 12, cosine}, 12), 0.1);
    EXPECT_DOUBLE_EQ(learning_rate({0.4, 0.1, 0, 8, cosine}, 0), 0.4);
}

}  // namespace
}  // namespace mgplan::runtime::learning_rate_test
