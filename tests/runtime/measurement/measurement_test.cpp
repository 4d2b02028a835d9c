#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/measurement/op_timer.hpp"
#include "runtime/measurement/rank_use.hpp"

namespace mgplan::runtime {
namespace {

using namespace std::chrono_literals;

TEST(OpTimer, GivesAnOpTheTimeUntilTheNextOneBegins) {
    OpTimer timer;
    for (int i = 0; i < 2; ++i) {
        timer.on_op({"matmul"});
        std::this_thread::sleep_for(20ms);
        timer.on_collective({"tp", model::CollectiveKind::all_reduce, 2, 8});
        std::this_thread::sleep_for(60ms);
        timer.end();
        std::this_thread::sleep_for(5ms);
    }
    const auto times = timer.times();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].op, "all_reduce");
    EXPECT_EQ(times[0].count, 2);
    EXPECT_GE(times[0].seconds, 0.12);
    EXPECT_EQ(times[1].op, "matmul");
    EXPECT_EQ(times[1].count, 2);
    EXPECT_GE(times[1].seconds, 0.04);
}

TEST(RankUse, CategoriesHaveTheAllocatorsNames) {
    for (int i = 0; i < model::kMemoryCategories; ++i)
        EXPECT_EQ(kByteCategories[static_cast<std::size_t>(i)], to_string(static_cast<model::MemoryCategory>(i)));
}

TEST(RankUse, ADifferenceNamesWhatOneSideAloneDid) {
    RunValues values;
    RankValues rank;
    rank.measured.memory.peak_bytes = 100;
    rank.measured.memory.high_water[3] = 70;
    rank.measured.collectives = {{"tp", "all_reduce", 3, 30}};
    rank.predicted = rank.measured;
    values.ranks = {rank, rank};
    compare(values);
    EXPECT_TRUE(values.as_predicted);
    EXPECT_TRUE(is_zero(values.ranks[0].difference));
    ASSERT_EQ(values.collectives.size(), 1U);
    EXPECT_EQ(values.collectives[0].measured.payload_bytes, 60);
    EXPECT_EQ(values.collectives[0].predicted_payload_bytes, 60);

    values.ranks[0].measured.memory.high_water[3] = 71;
    values.ranks[1].measured.collectives.push_back({"dp-cp", "barrier", 1, 0});
    values.ranks[1].predicted.collectives.clear();
    compare(values);
    EXPECT_FALSE(values.as_predicted);
    EXPECT_EQ(values.ranks[0].difference.memory.high_water[3], 1);
    EXPECT_EQ(values.ranks[1].difference.collectives,
              (std::vector<CollectiveValues>{{"dp-cp", "barrier", 1, 0}, {"tp", "all_reduce", 3, 30}}));
    ASSERT_EQ(values.collectives.size(), 2U);
    EXPECT_EQ(values.collectives[0].predicted_count, 0);
    EXPECT_EQ(values.collectives[1].predicted_count, 3);
}

}  // namespace
}  // namespace mgplan::runtime
