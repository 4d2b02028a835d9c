// Sharded gradients and parameters train the model that whole ones train: losses and gradient norms of one rank, bytes and traffic as
// on shapes, and no more of a unit in memory than what the passes use.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/training/training_task.hpp"
#include "plan/training/data_sharding.hpp"
#include "tests/model/training/parity_support.hpp"

namespace mgplan::model::sharded_data_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Sharded {
    Case layout;
    DataShardingChoice sharding{DataSharding::full};
    bool overlap = true;
    bool mixture = false;
};

void PrintTo(const Sharded& sharded, std::ostream* out) {
    *out << sharded.layout.name;
}

TrainingTask task_of(const ModelSpec& model, const Sharded& sharded, Precision precision) {
    TrainingTask task = task_for(model, sharded.layout, precision);
    set_data_sharding(sharded.sharding, task.training);
    task.layout.sizes.optimizer_instances = task.training.distributed_optimizer_instances;
    task.training.overlap_grad_reduce = task.training.overlap_param_gather = sharded.overlap;
    return task;
}

class ShardedData : public testing::TestWithParam<Sharded> {};

TEST_P(ShardedData, TrainsTheModelOfOneRankWithTheBytesPredicted) {
    const ModelSpec model = GetParam().mixture ? small_mixture() : tests::small_llama();
    TrainingTask task = task_of(model, GetParam(), Precision::fp64);
    Outcome outcome = train(task);
    expect_equal_steps(outcome.steps, one_rank(model, GetParam().layout.micro_batch).steps, 1e-10);
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank)
        expect_prediction_equals(task, rank, outcome.routing[static_cast<std::size_t>(rank)],
                                 outcome.memory[static_cast<std::size_t>(rank)], outcome.traffic[static_cast<std::size_t>(rank)]);
}

std::vector<Sharded> cases() {
    using enum RecomputeModule;
    constexpr DataShardingChoice kGradients{DataSharding::optimizer_gradients};
    constexpr DataShardingChoice kHybrid{DataSharding::hybrid, 2};
    const auto average = GradientOptions{.bucket_size = {}, .average_in_collective = true};
    const auto per_token = GradientOptions{.bucket_size = {}, .per_token_loss = true};
    return {
        {.layout = {.name = "dp2", .dp = 2}},
        {.layout = {.name = "dp4", .dp = 4}, .overlap = false},
        {.layout = {.name = "one_rank_has_nothing_to_share"}},
        {.layout = {.name = "dp2_gradients", .dp = 2}, .sharding = kGradients},
        {.layout = {.name = "dp4_gradients", .dp = 4}, .sharding = kGradients, .overlap = false},
        {.layout = {.name = "dp2_average", .dp = 2, .gradients = average}},
        {.layout = {.name = "dp2_per_token", .dp = 2, .gradients = per_token}},
        {.layout = {.name = "dp2_selective", .dp = 2, .recompute = Recompute::selective, .modules = {core_attn, mlp, layernorm}}},
        {.layout = {.name = "dp2_full", .dp = 2, .recompute = Recompute::full}},
        {.layout = {.name = "dp2_full3", .dp = 2, .recompute = Recompute::full, .recompute_layers = 3}},
        {.layout = {.name = "dp2_block", .dp = 2, .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 2}},
        {.layout = {.name = "tp2_sp_dp2", .tp = 2, .dp = 2, .sequence_parallel = true}},
        {.layout = {.name = "tp2_dp2_gradients", .tp = 2, .dp = 2}, .sharding = kGradients},
        {.layout = {.name = "cp2_dp2", .cp = 2, .dp = 2}},
        {.layout = {.name = "pp2_dp2", .pp = 2, .dp = 2}},
        {.layout = {.name = "pp2_vpp2_dp2", .pp = 2, .vpp = 2, .dp = 2}},
        {.layout = {.name = "pp4_ends_apart_dp2", .pp = 4, .dp = 2, .stages = "E|tt|tt|L"}},
        {.layout = {.name = "hybrid_dp4", .dp = 4}, .sharding = kHybrid},
        {.layout = {.name = "hybrid_dp2_replicas_of_one", .dp = 2}, .sharding = kHybrid},
        {.layout = {.name = "hybrid_tp2_cp2_dp2", .tp = 2, .cp = 2, .dp = 2, .sequence_parallel = true}, .sharding = kHybrid},
        {.layout = {.name = "hybrid_dp4_average", .dp = 4, .gradients = average}, .sharding = kHybrid},
        {.layout = {.name = "hybrid_dp_tp_order", .tp = 2, .dp = 4, .order = "dp-tp"}, .sharding = kHybrid},
        {.layout = {.name = "experts_dp4", .dp = 4}, .mixture = true},
        {.layout = {.name = "experts_dp4_ep2", .dp = 4, .ep = 2}, .mixture = true},
        {.layout = {.name = "experts_dp2_ep2", .dp = 2, .ep = 2}, .mixture = true},
        {.layout = {.name = "experts_dp4_ep2_gradients", .dp = 4, .ep = 2}, .sharding = kGradients, .mixture = true},
        {.layout = {.name = "experts_tp2_ep2_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true}, .mixture = true},
        {.layout = {.name = "experts_hybrid_dp4_ep2", .dp = 4, .ep = 2}, .sharding = kHybrid, .mixture = true},
    };
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShardedData, testing::ValuesIn(cases()), [](const auto& test) { return test.param.layout.name; });

std::int64_t most(const MemoryUse& memory, MemoryCategory category) {
    return memory.high_water[static_cast<std::size_t>(category)];
}

TEST(ShardedDataBytes, AreShardsAndWhatThePassesUse) {
    // fp64: 8 bytes of everything. Buckets of these sizes divide by 128, so that no padding blurs the sums.
    ModelSpec model = tests::small_llama();
    model.hidden = 128;
    model.heads = model.kv_heads = 4;
    model.head_dim = 32;
    model.ffn = 256;
    model.layers = 4;
    model.vocab = 128;
    const Sharded plain{.layout = {.name = "", .dp = 2}, .overlap = false};
    Sharded ahead = plain;
    ahead.overlap = true;
    const std::int64_t layer = 4 * 128 * 128 + 3 * 128 * 256 + 2 * 128, table = 128 * 128;
    const std::int64_t all = 4 * layer + 2 * table + 128;
    const auto rounded = [](std::int64_t elements) { return (elements + 127) / 128 * 128; };
    const std::int64_t units = 4 * rounded(layer) + rounded(table) + rounded(table + 128);
    EXPECT_EQ(units, all);
    for (const auto& [sharded, held] : {std::pair{plain, 1}, std::pair{ahead, 2}}) {
        const TrainingTask task = task_of(model, sharded, Precision::fp64);
        const MemoryUse memory = predict(task, 0, nullptr).memory;
        EXPECT_EQ(most(memory, MemoryCategory::parameters), 8 * (units / 2 + held * rounded(layer)));
        EXPECT_EQ(most(memory, MemoryCategory::gradients), 8 * (units / 2 + held * rounded(layer) + rounded(layer) / 2));  // and a sum
        EXPECT_EQ(most(memory, MemoryCategory::optimizer), 2 * 8 * units / 2);
    }
}

TEST(ShardedDataTraffic, GathersEveryUnitForEachPassAndReducesItBehindEachBackward) {
    const ModelSpec model = tests::small_llama();
    const Sharded sharded{.layout = {.name = "", .dp = 2}};
    const TrainingTask task = task_of(model, sharded, Precision::fp64);
    const std::int64_t microbatches = task.layout.num_microbatches;
    const CollectiveCounter traffic = predict(task, 0, nullptr).traffic;
    // Embedding, layers and head forward; layers and head backward, where the embedding reads nothing.
    EXPECT_EQ(traffic.of("dp-cp", CollectiveKind::all_gather).operations, kSteps * microbatches * (2 * model.layers + 3));
    EXPECT_EQ(traffic.of("dp-cp", CollectiveKind::reduce_scatter).operations, kSteps * microbatches * (model.layers + 2));
    Sharded gradients = sharded;
    gradients.sharding = {DataSharding::optimizer_gradients};
    const CollectiveCounter once = predict(task_of(model, gradients, Precision::fp64), 0, nullptr).traffic;
    EXPECT_EQ(once.of("dp-cp", CollectiveKind::all_gather).operations, kSteps * (model.layers + 2));
    EXPECT_EQ(once.of("dp-cp", CollectiveKind::reduce_scatter), traffic.of("dp-cp", CollectiveKind::reduce_scatter));
}

TEST(ShardedDataTypes, OfBf16TrainWithTheBytesPredicted) {
    for (const Dtype gradients : {Dtype::fp32, Dtype::bf16}) {
        TrainingTask task = task_of(small_mixture(), {.layout = {.name = "", .dp = 4, .ep = 2}}, Precision::bf16);
        task.training.grad_dtype = gradients;
        Outcome outcome = train(task);
        EXPECT_LT(outcome.steps.back().loss, outcome.steps.front().loss);
        expect_prediction_equals(task, outcome, 3);
    }
}

std::string refusal(const TrainingTask& task) {
    const auto features = features_not_executed(task, false);
    return features.empty() ? "" : features.front();
}

TEST(ShardedDataRefusals, NameWhatIsNotBuiltAndTheWayOut) {
    const Sharded full{.layout = {.name = "", .dp = 2}};
    const TrainingTask task = task_of(tests::small_llama(), full, Precision::bf16);
    EXPECT_EQ(refusal(task), "");
    const auto with = [&](const auto& change) {
        TrainingTask changed = task;
        change(changed);
        return refusal(changed);
    };
    const auto with_spec = [&](const auto& change) { return with([&](TrainingTask& t) { change(t.training.megatron.fully_sharded); }); };
    EXPECT_THAT(with([](TrainingTask& t) { t.layout.cuda_graphs = {CudaGraphScope::layer}; }),
                AllOf(HasSubstr("--sharding full with CUDA graphs"), HasSubstr("--cuda-graphs none")));
    EXPECT_THAT(with([](TrainingTask& t) { t.model.mtp_layers = 1; }), HasSubstr("multi-token prediction (use --sharding optimizer)"));
    EXPECT_THAT(with([](TrainingTask& t) { t.model.tied_embeddings = true; }), HasSubstr("tied embeddings"));
    EXPECT_THAT(with([](TrainingTask& t) { t.layout.schedule = SplitSchedule::zb_h1; }), HasSubstr("use --schedule auto"));
    EXPECT_THAT(with_spec([](FullyShardedSpec& s) { s.kind = FullyShardedKind::torch_fsdp2; }), HasSubstr("use --sharding full"));
    EXPECT_THAT(with_spec([](FullyShardedSpec& s) { s.strategy = ShardingStrategy::optim; }), HasSubstr("divides no gradients"));
    EXPECT_THAT(with_spec([](FullyShardedSpec& s) { s.double_buffer = true; }), HasSubstr("--fsdp-double-buffer"));
    EXPECT_THAT(with_spec([](FullyShardedSpec& s) { s.communication_unit = 1; }), HasSubstr("--suggested-communication-unit-size"));
    EXPECT_THAT(with_spec([](FullyShardedSpec& s) { s.main_params = Dtype::bf16; }), HasSubstr("--megatron-fsdp-main-params-dtype"));
    EXPECT_THAT(with_spec([](FullyShardedSpec& s) { s.main_grads = Dtype::bf16; }), HasSubstr("gradients in bf16"));
    EXPECT_THAT(with([](TrainingTask& t) {
                    t.training.distributed_optimizer_instances = 2;
                    t.training.megatron.fully_sharded.outer_optimizer = true;
                }),
                HasSubstr("--outer-dp-sharding-strategy"));
    EXPECT_THAT(with([](TrainingTask& t) {
                    t.training.megatron.fully_sharded = {};
                    t.training.distributed_optimizer_instances = 2;
                }),
                HasSubstr("use --sharding hybrid:N"));
}

}  // namespace
}  // namespace mgplan::model::sharded_data_test
