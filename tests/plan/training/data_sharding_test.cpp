// The words of --sharding and what they make of a training.

#include "plan/training/data_sharding.hpp"

#include <gtest/gtest.h>

namespace mgplan::data_sharding_test {
namespace {

TEST(DataSharding, WordsAreReadAndWrittenBack) {
    for (const char* word : {"none", "optimizer", "optimizer_gradients", "full", "hybrid:4"}) {
        const auto choice = parse_data_sharding(word);
        ASSERT_TRUE(choice.has_value()) << word;
        TrainingSpec training;
        set_data_sharding(*choice, training);
        EXPECT_EQ(data_sharding(training), choice->kind) << word;
        EXPECT_EQ(training.distributed_optimizer_instances, choice->replicas) << word;
    }
    for (const char* word : {"", "Full", "hybrid", "hybrid:", "hybrid:1", "hybrid:x", "hybrid:-2", "hybrid:99999999999", "full:2", "zero3"})
        EXPECT_FALSE(parse_data_sharding(word).has_value()) << word;
}

TEST(DataSharding, NoneTakesAwayWhatWasDivided) {
    TrainingSpec training;
    set_data_sharding({DataSharding::hybrid, 2}, training);
    set_data_sharding({DataSharding::none}, training);
    TrainingSpec plain;
    plain.distributed_optimizer = plain.overlap_param_gather = false;
    EXPECT_EQ(training, plain);
}

TEST(DataSharding, DividedParametersAreOverlapped) {
    TrainingSpec training;
    training.overlap_grad_reduce = training.overlap_param_gather = false;
    set_data_sharding({DataSharding::optimizer_gradients}, training);
    EXPECT_TRUE(training.overlap_grad_reduce);
    EXPECT_FALSE(training.overlap_param_gather);
    set_data_sharding({DataSharding::full}, training);
    EXPECT_TRUE(training.overlap_param_gather);
}

TEST(DataSharding, TorchsShardingStaysWhatItIs) {
    TrainingSpec training;
    training.distributed_optimizer = false;
    training.megatron.fully_sharded.kind = FullyShardedKind::torch_fsdp2;
    training.megatron.fully_sharded.strategy = ShardingStrategy::optim_grads_params;
    EXPECT_EQ(data_sharding(training), DataSharding::full);
    const TrainingSpec before = training;
    set_data_sharding({DataSharding::full}, training);
    EXPECT_EQ(training, before);
}

}  // namespace
}  // namespace mgplan::data_sharding_test
