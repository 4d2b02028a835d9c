#include "planner/training_course.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"

namespace mgplan::planner::training_course_test {
namespace {

using ::testing::HasSubstr;

class TrainingCourseOnALayout : public ::testing::Test {
protected:
    Workload work;
    LayoutRequest request;

    TrainingCourseOnALayout() {
        work.model = formats::load_model("llama2-7b").model;
        work.cluster = load_cluster("dgx-h100");
        work.batch = {.global_batch = 512, .sequence = 2048};
        work.training.distributed_optimizer = true;
        work.world = 32;
        work.memory_limit = work.cluster.memory_bytes;
        request.tp = 2;
        request.pp = 4;
        request.sequence_parallel = true;
        request.engine = Engine::megatron;
    }
    TrainingCourse course(const BatchSchedule& schedule) {
        const Layout layout = make_layout(request, work);
        simulator::CostModel model(work);
        return training_course(work, layout, schedule, model);
    }
    double seconds_of(std::int64_t batch) {
        Workload other = work;
        other.batch.global_batch = batch;
        simulator::CostModel model(other);
        return model.predict_exactly(make_layout(request, other)).time.iteration_seconds;
    }
    std::string refusal(const BatchSchedule& schedule) {
        try {
            (void)course(schedule);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "";
    }
};

TEST_F(TrainingCourseOnALayout, TimesEachBatchAsAJobOfItsOwn) {
    const TrainingCourse found = course({.steps = {{0, 64}, {1'000'000'000, 128}, {2'000'000'000, 512}}, .train_iterations = 20'000});
    ASSERT_EQ(found.stages.size(), 3U);
    double whole = 0;
    for (const TimedStage& timed : found.stages) {
        EXPECT_DOUBLE_EQ(timed.iteration_seconds, seconds_of(timed.stage.batch));
        EXPECT_EQ(timed.num_microbatches, timed.stage.batch / 4);
        whole += timed.iteration_seconds * static_cast<double>(timed.stage.steps.value());
    }
    EXPECT_DOUBLE_EQ(found.seconds().value(), whole);
}

TEST_F(TrainingCourseOnALayout, InterpolatesBetweenManyBatches) {
    request.vpp = 2;
    const TrainingCourse found = course({.ramp_up = BatchSchedule::RampUp{16, 16, 100'000}, .train_samples = 1'000'000});
    ASSERT_EQ(found.stages.size(), 32U);
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{9}, std::size_t{30}, std::size_t{31}}) {
        const TimedStage& timed = found.stages[i];
        EXPECT_NEAR(timed.iteration_seconds / seconds_of(timed.stage.batch), 1, 1e-6) << timed.stage.batch;
    }
}

TEST_F(TrainingCourseOnALayout, RefusesBatchesAtWhichMegatronStops) {
    const BatchSchedule odd{.steps = {{0, 66}, {1'000'000'000, 512}}, .train_iterations = 20'000};
    EXPECT_THAT(refusal(odd), HasSubstr("the batch of 66 from sample 0 on: global batch = 66 is no multiple of dp·micro-batch = 4·1"));
    request.vpp = 2;  // the interleaved schedule takes groups of pp microbatches
    EXPECT_THAT(refusal({.steps = {{0, 72}, {1'000'000'000, 512}}}), HasSubstr("the batch of 72 from sample 0 on: "));
    EXPECT_EQ(refusal({.steps = {{0, 64}, {1'000'000'000, 512}}}), "");
    EXPECT_THAT(refusal({.ramp_up = BatchSchedule::RampUp{2, 2, 100'000}, .train_samples = 1'000'000}),
                HasSubstr("more of the schedule's batches"));
}

TEST_F(TrainingCourseOnALayout, GoesOnFromACheckpointBehindBatchesThatItCannotDivide) {
    BatchSchedule schedule{.steps = {{0, 64}, {1'000'000'000, 66}, {2'000'000'000, 512}}, .train_iterations = 20'000, .resumed = true};
    const TrainingCourse found = course(schedule);
    ASSERT_EQ(found.stages.size(), 3U);
    EXPECT_EQ(found.stages[0].num_microbatches, 0) << "which comes before the one that cannot be run";
    EXPECT_EQ(found.stages[1].num_microbatches, 0);
    EXPECT_DOUBLE_EQ(found.seconds().value(), found.stages[2].iteration_seconds * static_cast<double>(found.stages[2].stage.steps.value()));
    schedule.steps[2].batch = 514;
    work.batch.global_batch = 512;
    EXPECT_THAT(refusal(schedule), HasSubstr("the batch of 514")) << "the last has to run";
}

}  // namespace
}  // namespace mgplan::planner::training_course_test
