#include "plan/training/batch_schedule.hpp"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"

namespace mgplan::batch_schedule_test {
namespace {

using RampUp = BatchSchedule::RampUp;

bool is(const BatchStage& stage, std::int64_t from, std::int64_t batch, std::int64_t steps) {
    return stage.from_samples == from && stage.batch == batch && stage.steps == steps;
}

struct Sum {
    std::int64_t steps = 0, samples = 0;
};
Sum sum(const std::vector<BatchStage>& stages) {
    TrainingCourse course;
    for (const auto& stage : stages) course.stages.push_back({.stage = stage});
    return {course.steps().value(), course.samples().value()};
}

std::vector<BatchStage> ramped(RampUp ramp_up, std::int64_t batch, std::int64_t samples) {
    return batch_stages({.ramp_up = ramp_up, .train_samples = samples}, {.global_batch = batch, .sequence = 2048});
}

// What Megatron-LM's own calculators said, stepped through as update_train_iters() of training.py does:
// RampupBatchsizeNumMicroBatchesCalculator of core_v0.17.0, StepBatchsizeNumMicroBatchesCalculator of d98e8a64.
TEST(BatchSchedule, RampsUpAsMegatronDoes) {
    const auto stages = ramped({16, 8, 300'000}, 1024, 2'000'000);
    ASSERT_THAT(stages, testing::SizeIs(127));
    EXPECT_TRUE(is(stages[0], 0, 16, 149));
    EXPECT_TRUE(is(stages[1], 2384, 24, 100));
    EXPECT_TRUE(is(stages[2], 4784, 32, 74));
    EXPECT_TRUE(is(stages[125], 298'064, 1016, 2));
    EXPECT_TRUE(is(stages[126], 300'096, 1024, 1660));
    EXPECT_EQ(sum(stages).steps, 2979);
    EXPECT_EQ(sum(stages).samples, 1'999'936);

    const auto odd = ramped({7, 3, 1000}, 100, 5000);
    ASSERT_THAT(odd, testing::SizeIs(22)) << "some batches are passed over";
    EXPECT_TRUE(is(odd[2], 65, 13, 3));
    EXPECT_TRUE(is(odd[21], 1001, 100, 39));
    EXPECT_EQ(sum(odd).steps, 71);

    const auto short_of_samples = ramped({16, 16, 100}, 1024, 50'000);
    ASSERT_THAT(short_of_samples, testing::SizeIs(3));
    EXPECT_TRUE(is(short_of_samples[1], 16, 176, 1));
    EXPECT_TRUE(is(short_of_samples[2], 192, 1024, 48));
}

TEST(BatchSchedule, EndsInsideARampUpAsMegatronDoes) {
    const auto ended = ramped({32, 32, 2'000'000}, 512, 1'464'843);
    ASSERT_THAT(ended, testing::SizeIs(11));
    EXPECT_TRUE(is(ended[10], 1'333'600, 352, 373));
    EXPECT_EQ(sum(ended).steps, 12'579);
    EXPECT_EQ(sum(ramped({16, 16, 5000}, 64, 3000)).samples, 3024);
    const auto at_its_end = ramped({16, 16, 4000}, 64, 4000);
    ASSERT_THAT(at_its_end, testing::SizeIs(3));
    EXPECT_TRUE(is(at_its_end[2], 2688, 48, 28));
}

TEST(BatchSchedule, FollowsStepsAsMegatronDoes) {
    const BatchSpec batch{.global_batch = 6144, .sequence = 8192};
    BatchSchedule schedule{.steps = {{0, 768}, {250'000'000'000, 1536}, {500'000'000'000, 3072}, {750'000'000'000, 6144}},
                           .train_samples = 122'070'312};
    const auto stages = batch_stages(schedule, batch);
    ASSERT_THAT(stages, testing::SizeIs(4));
    EXPECT_TRUE(is(stages[0], 0, 768, 39'737));
    EXPECT_TRUE(is(stages[1], 30'518'016, 1536, 19'868));
    EXPECT_TRUE(is(stages[2], 61'035'264, 3072, 9935));
    EXPECT_TRUE(is(stages[3], 91'555'584, 6144, 4967));
    schedule.train_samples.reset();
    EXPECT_FALSE(batch_stages(schedule, batch).back().steps) << "nothing ends it";
    schedule.train_iterations = 60'000;
    EXPECT_EQ(sum(batch_stages(schedule, batch)).steps, 60'000);
    EXPECT_THAT(batch_stages(schedule, batch), testing::SizeIs(3));
}

TEST(BatchSchedule, CountsOneBatchInWholeSteps) {
    const BatchSpec batch{.global_batch = 64, .sequence = 2048};
    EXPECT_EQ(sum(batch_stages({.train_samples = 1000}, batch)).steps, 15) << "train_samples // global_batch_size";
    EXPECT_EQ(sum(batch_stages({.train_iterations = 1000}, batch)).samples, 64'000);
    EXPECT_THAT(batch_stages({.train_samples = 63}, batch), testing::SizeIs(0));
    EXPECT_FALSE(BatchSchedule{}.stated());
}

// RampupBatchsizeNumMicroBatchesCalculator of core_v0.17.0 with decrease_batch_size_if_needed, its steps counted by update_train_iters()
// and its samples as train() consumes them.
TEST(BatchSchedule, RoundsBatchesDownAsMegatronDoes) {
    BatchSchedule schedule{.ramp_up = RampUp{32, 16, 1000}, .train_samples = 5000, .decreases = true};
    const BatchSpec batch{.global_batch = 128, .sequence = 2048};
    const auto stages = batch_stages(schedule, batch, 24);
    ASSERT_THAT(stages, testing::SizeIs(5));
    EXPECT_TRUE(is(stages[0], 0, 24, 7));
    EXPECT_TRUE(is(stages[1], 168, 48, 7)) << "of 48 and of 64";
    EXPECT_TRUE(is(stages[2], 504, 72, 3));
    EXPECT_TRUE(is(stages[4], 1008, 120, 28));
    EXPECT_EQ(sum(stages).steps, 48);
    EXPECT_EQ(sum(stages).samples, 4368);
    schedule.whole_batch = 128;
    EXPECT_EQ(sum(batch_stages(schedule, {.global_batch = 120, .sequence = 2048}, 24)).samples, 4368) << "of a batch that is rounded down";
    schedule.decreases = false;
    EXPECT_EQ(sum(batch_stages(schedule, batch, 24)).samples, 4944);

    const BatchSchedule fixed{.train_samples = 5000, .decreases = true, .whole_batch = 100};
    EXPECT_EQ(sum(batch_stages(fixed, {.global_batch = 96, .sequence = 2048}, 48)).samples, 4800) << "50 steps of 96";
}

std::string refusal(const BatchSchedule& schedule, const BatchSpec& batch) {
    try {
        (void)batch_stages(schedule, batch);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

TEST(BatchSchedule, RefusesWhatMegatronAssertsAndWhatCannotBeCounted) {
    const BatchSpec batch{.global_batch = 1 << 20, .sequence = 4096};
    EXPECT_THAT(refusal({.steps = {{0, 8}, {5000, 16}, {6000, 32}}}, batch), testing::HasSubstr("the step to 32 begins with sample 1"));
    EXPECT_THAT(refusal({.steps = {{5000, 8}, {9000, 16}}}, batch), testing::HasSubstr("begins with sample 1; let its first step"));
    EXPECT_EQ(refusal({.steps = {{4000, 8}, {9000, 16}}, .train_iterations = 10}, batch), "") << "within the first sequence";
    EXPECT_THAT(refusal({.ramp_up = RampUp{1, 1, std::int64_t{1} << 40}, .train_samples = std::int64_t{1} << 41}, batch),
                testing::HasSubstr("more than 65,536 times"));
    EXPECT_THAT(refusal({.ramp_up = RampUp{1, 1, std::numeric_limits<std::int64_t>::max()}, .train_samples = 1000}, batch),
                testing::HasSubstr("longer than 2^62 samples"));
    EXPECT_THAT(
        [&] {
            (void)batch_stages({.ramp_up = RampUp{32, 8, 1000}, .train_samples = 5000, .decreases = true}, batch, 48);
        },
        testing::ThrowsMessage<ConfigError>(testing::HasSubstr("the batch of 32 from sample 0 on is less than dp times")));
    EXPECT_THAT(refusal({.train_iterations = std::int64_t{1} << 40}, batch), testing::HasSubstr("longer than 2^62 tokens"));
}

}  // namespace
}  // namespace mgplan::batch_schedule_test
