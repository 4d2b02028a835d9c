#include "simulator/memory/sharded_state.hpp"

#include <gtest/gtest.h>

namespace mgplan::simulator::sharded_state_test {
namespace {

constexpr std::int64_t kLayer = 200'000'000, kLayers = 32, kTable = 500'000'000;

UnitElements plain(std::int64_t dense, std::int64_t expert = 0) {
    UnitElements unit;
    unit.plain = {dense, expert};
    return unit;
}

/// 32 layers with an embedding and an output layer, of which eight ranks have an eighth each: 7.4 billion parameters.
ShardedChunk chunk() {
    return {plain(kLayer * kLayers), plain(kLayer), plain(kTable), plain(kTable)};
}

constexpr std::int64_t kAll = kLayer * kLayers + 2 * kTable;
constexpr ShardingRanks kEight{{8, 8}, 1};

TrainingSpec training_of(FullyShardedKind kind, ShardingStrategy strategy) {
    TrainingSpec training;
    training.megatron.fully_sharded.kind = kind;
    training.megatron.fully_sharded.strategy = strategy;
    return training;
}

TrainingSpec megatron_fsdp(ShardingStrategy strategy = ShardingStrategy::optim_grads_params) {
    return training_of(FullyShardedKind::megatron_fsdp, strategy);
}

// fully_shard() keeps a bf16 shard, the optimizer an fp32 copy and two moments of it: 2 + 12 bytes of an eighth of the elements.
TEST(TorchFsdp2, HoldsShardsAndTwoGatheredUnits) {
    const TrainingSpec training = training_of(FullyShardedKind::torch_fsdp2, ShardingStrategy::optim_grads_params);
    const ModelStateBytes bytes = sharded_state_bytes(chunk(), kEight, training);
    EXPECT_EQ(bytes.optimizer, 12 * kAll / 8);
    EXPECT_EQ(bytes.parameters, 2 * (kAll / 8 + kLayer + kTable));
    EXPECT_EQ(bytes.gradients, 2 * (kAll / 8 + kLayer + kTable));
    EXPECT_EQ(bytes.update, 4 * kAll / 8);
}

TEST(TorchFsdp2, HoldsAllParametersThatItDoesNotReshard) {
    TrainingSpec training = training_of(FullyShardedKind::torch_fsdp2, ShardingStrategy::optim_grads_params);
    training.megatron.fully_sharded.reshard_after_forward = false;
    EXPECT_EQ(sharded_state_bytes(chunk(), kEight, training).parameters, 2 * (kAll / 8 + kAll));
}

TEST(MegatronFsdp, DividesByItsStrategy) {
    struct Case {
        ShardingStrategy strategy;
        std::int64_t parameters, gradients, optimizer;
    };
    // Half a communication unit of 10^9 elements is 3 layers gathered ahead of the one in use, and a whole unit and a layer wait to be
    // reduced. What is no layer stays gathered.
    const Case cases[] = {
        {ShardingStrategy::no_shard, 2 * kAll, 2 * kAll, 12 * kAll},
        {ShardingStrategy::optim, 2 * kAll, 2 * kAll, 12 * kAll / 8},
        {ShardingStrategy::optim_grads, 2 * kAll, 2 * (kAll / 8 + 1'000'000'000 + kLayer), 12 * kAll / 8},
        {ShardingStrategy::optim_grads_params, 2 * (kAll / 8 + 2 * kTable + 4 * kLayer), 2 * (kAll / 8 + 1'000'000'000 + kLayer),
         12 * kAll / 8},
    };
    for (const Case& one : cases) {
        const ModelStateBytes bytes = sharded_state_bytes(chunk(), kEight, megatron_fsdp(one.strategy));
        EXPECT_EQ(bytes.parameters, one.parameters) << to_string(one.strategy);
        EXPECT_EQ(bytes.gradients, one.gradients) << to_string(one.strategy);
        EXPECT_EQ(bytes.optimizer, one.optimizer) << to_string(one.strategy);
    }
}

TEST(MegatronFsdp, HasTwoUnitsOfEachWithDoubleBuffers) {
    TrainingSpec training = megatron_fsdp();
    training.megatron.fully_sharded.double_buffer = true;
    const ModelStateBytes bytes = sharded_state_bytes(chunk(), kEight, training);
    EXPECT_EQ(bytes.parameters, 2 * (kAll / 8 + 2 * kTable + 2 * kLayer));
    EXPECT_EQ(bytes.gradients, 2 * (kAll / 8 + 2 * kLayer));
}

TEST(MegatronFsdp, GathersNoMoreThanThereIs) {
    TrainingSpec training = megatron_fsdp();
    training.megatron.fully_sharded.communication_unit = std::int64_t{1} << 40;
    const ModelStateBytes bytes = sharded_state_bytes(chunk(), kEight, training);
    EXPECT_EQ(bytes.parameters, 2 * (kAll / 8 + kAll));
    EXPECT_EQ(bytes.gradients, 2 * (kAll / 8 + kLayer * kLayers));
}

TEST(MegatronFsdp, HasTypesOfItsOwn) {
    TrainingSpec training = megatron_fsdp();
    FullyShardedSpec& spec = training.megatron.fully_sharded;
    spec.double_buffer = true;
    spec.main_grads = Dtype::fp32;
    spec.communicated_grads = Dtype::bf16;
    ModelStateBytes bytes = sharded_state_bytes(chunk(), kEight, training);
    EXPECT_EQ(bytes.gradients, 4 * kAll / 8 + 2 * 2 * kLayer);
    EXPECT_EQ(bytes.update, 0);  // gradients are as wide as what they update
    spec.main_params = std::nullopt;
    bytes = sharded_state_bytes(chunk(), kEight, training);
    EXPECT_EQ(bytes.optimizer, 8 * kAll / 8);  // the parameters are their own
}

TEST(MegatronFsdp, DividesTheOptimizerOverInstancesOnRequest) {
    TrainingSpec training = megatron_fsdp();
    const ShardingRanks four_by_two{{4, 4}, 2};
    const ModelStateBytes replicated = sharded_state_bytes(chunk(), four_by_two, training);
    training.megatron.fully_sharded.outer_optimizer = true;
    const ModelStateBytes divided = sharded_state_bytes(chunk(), four_by_two, training);
    EXPECT_EQ(replicated.optimizer, 12 * kAll / 4);
    EXPECT_EQ(divided.optimizer, 12 * kAll / 8);
    EXPECT_EQ(divided.parameters, replicated.parameters);
    EXPECT_EQ(divided.gradients, replicated.gradients);
}

TEST(MegatronFsdp, DividesExpertsOverTheirOwnRanks) {
    ShardedChunk mixture{plain(0, kLayer * kLayers), plain(0, kLayer), {}, {}};
    const ModelStateBytes bytes = sharded_state_bytes(mixture, {{8, 2}, 1}, megatron_fsdp());
    EXPECT_EQ(bytes.optimizer, 12 * kLayer * kLayers / 2);
}

// fp8_need_transpose_data: mxfp8 parameters are two copies, of which a pass multiplies with one.
TEST(MegatronFsdp, ShardsBothCopiesOfMxfp8) {
    UnitElements layer;
    layer.quantised = {kLayer, 0};
    layer.quantised_bytes = {kLayer, kLayer, 0};
    const ShardedChunk quantised{layer.times(kLayers), layer, {}, {}};
    TrainingSpec training = megatron_fsdp();
    training.precision = Precision::fp8;
    training.fp8_parameters = true;
    training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
    training.megatron.fully_sharded.double_buffer = true;
    EXPECT_EQ(sharded_state_bytes(quantised, kEight, training).parameters, 2 * kLayer * kLayers / 8 + 2 * kLayer);
    // With tensorwise scaling the second copy is made of what is gathered, where the GPU needs one.
    training.megatron.fp8_recipe = Fp8Recipe::tensorwise;
    EXPECT_EQ(sharded_state_bytes(quantised, kEight, training).parameters, kLayer * kLayers / 8 + 2 * 2 * kLayer);
}

}  // namespace
}  // namespace mgplan::simulator::sharded_state_test
