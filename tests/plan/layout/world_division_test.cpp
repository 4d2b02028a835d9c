#include "plan/layout/world_division.hpp"

#include <gtest/gtest.h>

namespace mgplan::world_division_test {
namespace {

TEST(WorldDivision, NamesTheFirstSizeThatDoesNotDivide) {
    ParallelSizes sizes;
    sizes.world = 24;
    sizes.tp = 2;
    sizes.cp = 3;
    sizes.pp = 4;
    EXPECT_EQ(undivided_world(sizes), std::nullopt);
    sizes.pp = 5;
    EXPECT_EQ(undivided_world(sizes), "tp·cp·pp = 2·3·5 does not divide world = 24; use a pp of 1, 2 or 4");
    sizes.cp = 5;
    EXPECT_EQ(undivided_world(sizes), "tp·cp = 2·5 does not divide world = 24; use a cp of 1, 2, 3, 4, 6 or 12");
    sizes.tp = 5;
    EXPECT_EQ(undivided_world(sizes), "tp = 5 does not divide world = 24; use 1, 2, 3, 4, 6, 8, 12 or 24");
}

TEST(WorldDivision, SaysWhichBatchesRanksTakeAtOnce) {
    EXPECT_EQ(undivided_batch(96, 8, 4), std::nullopt);
    EXPECT_EQ(undivided_batch(96, 8, 5),
              "global batch = 96 is no multiple of dp·micro-batch = 8·5; use a micro-batch of 1, 2, 3, 4, 6 or 12 or a batch that is a "
              "multiple of 40");
    EXPECT_EQ(undivided_batch(100, 8, 1),
              "global batch = 100 is no multiple of dp·micro-batch = 8·1; use a micro-batch of 1 on fewer dp ranks or a batch that is a "
              "multiple of 8");
}

}  // namespace
}  // namespace mgplan::world_division_test
