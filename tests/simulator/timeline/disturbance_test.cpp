// Stragglers and jitter on pipelines that can be computed by hand.

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/timeline/jitter.hpp"
#include "simulator/timeline/stragglers.hpp"

namespace mgplan::simulator::disturbance_test {
namespace {

using ::testing::ElementsAre;

ParallelSizes sizes(std::int64_t world, std::int64_t tp, std::int64_t cp, std::int64_t ep, std::int64_t pp) {
    ParallelSizes made;
    made.world = world;
    made.tp = tp;
    made.cp = cp;
    made.ep = ep;
    made.pp = pp;
    return made;
}

TEST(Stragglers, SlowTheStageOfTheirReplica) {
    // tp 2, dp 2, pp 2: ranks 0-1 and 2-3 are the first stage of either replica, 4-5 and 6-7 the second.
    const ParallelSizes two = sizes(8, 2, 1, 1, 2);
    EXPECT_THAT(stage_slowdowns(two, {{1, 1.5}}), ElementsAre(ElementsAre(1.5, 1)));
    EXPECT_THAT(stage_slowdowns(two, {{6, 2}}), ElementsAre(ElementsAre(1, 2)));
    // Both ranks of a tp group: the slower counts.
    EXPECT_THAT(stage_slowdowns(two, {{0, 1.25}, {1, 1.5}}), ElementsAre(ElementsAre(1.5, 1)));
    // One replica, both stages; then two replicas, which are two pipelines.
    EXPECT_THAT(stage_slowdowns(two, {{0, 1.5}, {5, 2}}), ElementsAre(ElementsAre(1.5, 2)));
    EXPECT_THAT(stage_slowdowns(two, {{0, 1.5}, {6, 2}}), ElementsAre(ElementsAre(1.5, 1), ElementsAre(1, 2)));
    EXPECT_THAT(stage_slowdowns(two, {{0, 2}, {2, 2}}), ElementsAre(ElementsAre(2, 1)));
    EXPECT_TRUE(stage_slowdowns(two, {}).empty());
}

TEST(Stragglers, OfExpertGroupsSlowAllReplicas) {
    ParallelSizes experts = sizes(8, 1, 1, 4, 2);
    EXPECT_THAT(stage_slowdowns(experts, {{0, 1.5}, {7, 2}}), ElementsAre(ElementsAre(1.5, 2)));
}

PipelineProgram program_of(int pp, std::int64_t microbatches) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = 1;
    request.microbatches = microbatches;
    return make_program(order_of(Schedule(request)));
}

PipelineTimes unit_times(const PipelineProgram& program) {
    PipelineTimes times;
    times.passes.assign(program.slots(), 1);
    return times;
}

TEST(Jitter, FactorsStretchTheirOwnPass) {
    // Two ranks, one microbatch: F0, F1, B1, B0, one behind the other.
    const PipelineProgram program = program_of(2, 1);
    PipelineTimes times = unit_times(program);
    EXPECT_EQ(run_pipeline(program, times).end, 4);
    times.factors = {2, 3, 4, 5};
    EXPECT_EQ(run_pipeline(program, times).end, 14);
}

TEST(Jitter, OfNothingIsTheIteration) {
    const PipelineProgram program = program_of(4, 8);
    const JitterResult result = run_with_jitter(program, unit_times(program), {0, 1, 1});
    EXPECT_NEAR(result.mean, 2 * (8 + 3), 1e-9);
    EXPECT_DOUBLE_EQ(result.p95, 22);
    EXPECT_EQ(result.runs, 200);
}

TEST(Jitter, OfOneRankHasTheSpreadOfASum) {
    // 2·64 passes of one second in a row: mean 128, deviation 0.1·√128 = 1.13, 95 % below 1.64 of those.
    const PipelineProgram program = program_of(1, 64);
    const JitterResult result = run_with_jitter(program, unit_times(program), {0.1, 7, 1});
    const double deviation = 0.1 * std::sqrt(128.0);
    EXPECT_NEAR(result.mean, 128, 4 * deviation / std::sqrt(200.0));
    EXPECT_NEAR(result.p95, 128 + 1.645 * deviation, 0.6 * deviation);
}

TEST(Jitter, OfASeedIsAlwaysTheSameAndOfReplicasTheSlowest) {
    const PipelineProgram program = program_of(4, 16);
    const PipelineTimes times = unit_times(program);
    const JitterResult once = run_with_jitter(program, times, {0.05, 3, 1}), again = run_with_jitter(program, times, {0.05, 3, 1});
    EXPECT_EQ(once.mean, again.mean);
    EXPECT_EQ(once.p95, again.p95);
    EXPECT_NE(once.mean, run_with_jitter(program, times, {0.05, 4, 1}).mean);
    // Ranks wait for each other's longer passes, and replicas for the slowest of them.
    const double even = run_pipeline(program, times).end;
    EXPECT_GT(once.mean, even);
    EXPECT_GE(once.p95, once.mean);
    const JitterResult many = run_with_jitter(program, times, {0.05, 3, 16});
    EXPECT_EQ(many.replicas, 16);
    EXPECT_GT(many.mean, once.mean);
}

TEST(Jitter, DrawsLongIterationsLessOften) {
    const PipelineProgram program = program_of(2, 4096);  // 16,384 passes
    const JitterResult result = run_with_jitter(program, unit_times(program), {0.1, 1, 1 << 20});
    EXPECT_EQ(result.runs, 20);
    EXPECT_EQ(result.replicas, (1 << 22) / 16384 / 20);
}

}  // namespace
}  // namespace mgplan::simulator::disturbance_test
