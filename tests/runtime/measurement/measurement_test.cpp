#include <algorithm>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/measurement/op_timer.hpp"
#include "runtime/measurement/rank_use.hpp"

namespace mgplan::runtime::measurement_test {
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

TEST(OpTimer, GivesACollectiveTheTimeInWhichItIsWaitedForBehindOtherOps) {
    OpTimer timer;
    timer.on_waiting(model::CollectiveKind::all_gather);  // begun before anything was timed
    timer.on_collective({"tp", model::CollectiveKind::reduce_scatter, 2, 8});
    timer.on_op({"matmul"});
    std::this_thread::sleep_for(20ms);
    timer.on_waiting(model::CollectiveKind::reduce_scatter);
    std::this_thread::sleep_for(100ms);
    timer.end();
    const auto times = timer.times();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].op, "reduce_scatter");
    EXPECT_EQ(times[0].count, 1);
    EXPECT_GE(times[0].seconds, 0.1);
    EXPECT_EQ(times[1].op, "matmul");
    EXPECT_GE(times[1].seconds, 0.02);
}

/// A device whose clock goes on by 1 s with each op, and by 0.25 s between the steps.
class CountedMarks final : public model::DeviceMarks {
public:
    double now = 0;
    int most = 0, taken = 0;

    void mark() override { marks_.push_back(now); }
    std::vector<double> take() override {
        most = std::max(most, static_cast<int>(marks_.size()));
        ++taken;
        std::vector<double> seconds;
        for (std::size_t i = 1; i < marks_.size(); ++i) seconds.push_back(marks_[i] - marks_[i - 1]);
        marks_.clear();
        return seconds;
    }

private:
    std::vector<double> marks_;
};

TEST(OpTimer, ReadsADevicesMarksBehindEachStep) {
    CountedMarks marks;
    OpTimer timer(&marks);
    for (int step = 0; step < 2; ++step) {
        timer.on_op({"matmul"});
        marks.now += 1;
        timer.on_collective({"tp", model::CollectiveKind::all_reduce, 2, 8});
        marks.now += 2;
        timer.end();
        marks.now += 0.25;  // nothing's
        timer.on_op({"matmul"});
        marks.now += 1;
        timer.settle();  // the last op ends with the step
        EXPECT_EQ(marks.taken, step + 1);
        marks.now += 0.25;
    }
    timer.end();
    timer.settle();
    const auto times = timer.times();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[0].count + times[1].count, 6);
    for (const auto& time : times) {
        EXPECT_EQ(time.count, time.op == "matmul" ? 4 : 2);
        EXPECT_DOUBLE_EQ(time.seconds, 4);
    }
}

TEST(OpTimer, KeepsMarksOfLongStepsBounded) {
    CountedMarks marks;
    OpTimer timer(&marks);
    constexpr int kOps = 200'000;
    for (int i = 0; i < kOps; ++i) {
        timer.on_op({"add"});
        marks.now += 1;
    }
    timer.end();
    timer.settle();
    EXPECT_LE(marks.most, (1 << 16) + 1);
    ASSERT_EQ(timer.times().size(), 1U);
    EXPECT_EQ(timer.times()[0].count, kOps);
    EXPECT_DOUBLE_EQ(timer.times()[0].seconds, kOps);
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
}  // namespace mgplan::runtime::measurement_test
