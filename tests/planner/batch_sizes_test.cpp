#include "planner/batch_sizes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner/support.hpp"

namespace mgplan::planner::testing::batch_sizes_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::int64_t assumed(const char* model, std::int64_t world, std::int64_t sequence = 4096) {
    return assumed_batch(workload_of(model, world, "dgx-h100", 64, sequence).model, world, sequence);
}

TEST(BatchSizes, AssumeFourMebitokensOfWhichEveryRankCanTakeItsShare) {
    EXPECT_EQ(assumed("llama3-8b", 16), 1024);
    EXPECT_EQ(assumed("llama3-8b", 72), 1152) << "a multiple of 4 x 72";
    EXPECT_EQ(assumed("llama3-8b", 1000), 2000) << "a multiple of the world";
    EXPECT_EQ(assumed("llama3-8b", 2048), 2048);
    EXPECT_EQ(assumed("llama3-8b", 96, 131072), 33) << "of its odd part where there are fewer sequences than GPUs";
}

TEST(BatchSizes, AssumeEightSequencesPerGpuForExperts) {
    EXPECT_EQ(assumed("qwen3-30b-a3b", 64), 1024);
    EXPECT_EQ(assumed("qwen3-30b-a3b", 72), 1152);
    EXPECT_EQ(assumed("qwen3-30b-a3b", 1024), 8192);
}

TEST(BatchSizes, AreMovedByAnEighthAtMost) {
    EXPECT_EQ(suiting_batch(1024, 72), 1152);
    EXPECT_EQ(suiting_batch(4096, 132), 4224);
    EXPECT_EQ(suiting_batch(256, 72), 288) << "a multiple of the world where those of 4 x 72 are too far";
    EXPECT_EQ(suiting_batch(32, 24), std::nullopt);
}

TEST(BatchSizes, OfSeveralWorldsSuitTheOddPartOfEach) {
    EXPECT_EQ(batch_for_worlds(1024, {512, 128}), 1024);
    EXPECT_EQ(batch_for_worlds(1024, {512, 144}), 1152) << "a multiple of 9 x 128, an eighth more";
    EXPECT_EQ(batch_for_worlds(4096, {512, 144}), 4608);
    EXPECT_EQ(batch_for_worlds(1024, {48, 80}), 1080) << "a multiple of 15 x 8: of 15 x 16 they differ by more";
    EXPECT_EQ(batch_for_worlds(1152, {288, 256}), 1152) << "it suits both as it is";
    EXPECT_EQ(batch_for_worlds(8, {7, 11}), 8) << "none is near";
    EXPECT_EQ(batch_for_worlds(1024, {16777213, 16777199, 16777183}), 1024) << "products of odd parts stay within 64 bits";
}

TEST(BatchSizes, AreDividedByEveryMicroBatchThatIsTried) {
    EXPECT_THAT(searched_micro_batches(1080, 72), ElementsAre(1, 3, 5, 15));
    EXPECT_THAT(searched_micro_batches(1024, 8), ElementsAre(1, 2, 4, 8, 16));
    EXPECT_THAT(searched_micro_batches(1080, 16), ElementsAre(1)) << "a rule rejects it";
}

TEST(BatchSizes, NearestToOneThatSuitsNoLayout) {
    SearchSpace space;
    space.tp = space.pp = space.cp = {1};
    EXPECT_THAT(nearest_legal_batches(workload_of("llama3-8b", 72, "dgx-h100", 1000, 4096), space), ElementsAre(936, 1008));
    space.micro_batch = {4};
    EXPECT_THAT(nearest_legal_batches(workload_of("llama3-8b", 72, "dgx-h100", 100, 4096), space), ElementsAre(288)) << "none is smaller";
    // Interleaved stages also need a multiple of pp microbatches.
    space.pp = {4};
    space.vpp = {2};
    EXPECT_THAT(nearest_legal_batches(workload_of("llama3-8b", 8, "dgx-h100", 60, 4096), space), ElementsAre(32, 64));
    space.tp = {7};
    EXPECT_THAT(nearest_legal_batches(workload_of("llama3-8b", 8, "dgx-h100", 60, 4096), space), IsEmpty());
}

}  // namespace
}  // namespace mgplan::planner::testing::batch_sizes_test
