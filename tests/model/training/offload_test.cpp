// State and inputs that wait in the host's memory train the model that all on the device trains: losses and gradient norms of one rank,
// bytes on the device and on the host as on shapes.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/training/training_task.hpp"
#include "plan/training/data_sharding.hpp"
#include "tests/model/training/parity_support.hpp"

namespace mgplan::model::offload_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using enum OffloadModule;

enum class Network : std::uint8_t { llama, mixture, latent };

ModelSpec model_of(Network network) {
    return network == Network::llama ? tests::small_llama() : network == Network::mixture ? small_mixture() : small_deepseek_v3();
}

struct Offloaded {
    Case layout;
    OffloadSpec offload;
    Network network = Network::llama;
    std::int64_t staged = kStagedElements;
    OptimizerKind optimizer = OptimizerKind::adam;
    DataShardingChoice sharding{DataSharding::optimizer};
};

void PrintTo(const Offloaded& offloaded, std::ostream* out) {
    *out << offloaded.layout.name;
}

TrainingTask task_of(const Offloaded& offloaded, Precision precision) {
    TrainingTask task = task_for(model_of(offloaded.network), offloaded.layout, precision);
    if (offloaded.layout.distributed_optimizer) set_data_sharding(offloaded.sharding, task.training);
    task.training.offload = offloaded.offload;
    task.training.megatron.optimizer = offloaded.optimizer;
    task.optimizer.staged_elements = offloaded.staged;
    return task;
}

class Offload : public testing::TestWithParam<Offloaded> {};

TEST_P(Offload, TrainsTheModelOfOneRankWithTheBytesPredicted) {
    const TrainingTask task = task_of(GetParam(), Precision::fp64);
    Outcome outcome = train(task);
    if (GetParam().optimizer == OptimizerKind::adam) {
        expect_equal_steps(outcome.steps, one_rank(task.model, GetParam().layout.micro_batch).steps, 1e-10);
    } else {
        TrainingTask plain = task;
        plain.training.offload = {};
        expect_equal_steps(outcome.steps, train(plain).steps, 1e-10);
    }
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) {
        expect_prediction_equals(task, outcome, rank);
        EXPECT_GT(outcome.host[static_cast<std::size_t>(rank)], 0) << "rank " << rank;
    }
}

std::vector<Offloaded> cases() {
    constexpr OffloadSpec kAll{.optimizer = 1};
    constexpr OffloadSpec kHalf{.optimizer = 0.5};
    constexpr OffloadSpec kStates{.states = 1}, kSomeStates{.states = 0.75};
    const auto inputs = [](EnumSet<OffloadModule> modules) { return OffloadSpec{.modules = modules}; };
    const OffloadSpec attention = inputs({attn_norm, qkv_linear, core_attn, attn_proj});
    const OffloadSpec every = inputs({attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act});
    const OffloadSpec both{.optimizer = 0.25, .modules = attention.modules};
    return {
        {.layout = {.name = "optimizer"}, .offload = kAll},
        {.layout = {.name = "optimizer_dp2_in_slices", .dp = 2}, .offload = kAll, .staged = 100},
        {.layout = {.name = "half_the_optimizer_dp2", .dp = 2}, .offload = kHalf, .staged = 1000},
        {.layout = {.name = "optimizer_not_sharded_dp2", .dp = 2, .distributed_optimizer = false}, .offload = kHalf, .staged = 333},
        {.layout = {.name = "optimizer_of_lion_dp2", .dp = 2}, .offload = kHalf, .staged = 500, .optimizer = OptimizerKind::lion},
        {.layout = {.name = "optimizer_sharding_full_dp2", .dp = 2}, .offload = kHalf, .staged = 500, .sharding = {DataSharding::full}},
        {.layout = {.name = "optimizer_of_experts_ep2_dp2", .dp = 2, .ep = 2}, .offload = kHalf, .network = Network::mixture},
        {.layout = {.name = "states_dp2", .dp = 2}, .offload = kStates},
        {.layout = {.name = "some_states_not_sharded_pp2_dp2", .pp = 2, .dp = 2, .distributed_optimizer = false}, .offload = kSomeStates},
        {.layout = {.name = "states_of_experts_ep2_dp2", .dp = 2, .ep = 2}, .offload = kSomeStates, .network = Network::mixture},
        {.layout = {.name = "norm_of_attention"}, .offload = inputs({attn_norm})},
        {.layout = {.name = "projection_of_queries"}, .offload = inputs({qkv_linear})},
        {.layout = {.name = "core_attention_cp2", .cp = 2}, .offload = inputs({core_attn})},
        {.layout = {.name = "output_projection_tp2", .tp = 2}, .offload = inputs({attn_proj})},
        {.layout = {.name = "norm_of_mlp_pp2", .pp = 2}, .offload = inputs({mlp_norm})},
        {.layout = {.name = "attention_pp2_vpp2_dp2", .pp = 2, .vpp = 2, .dp = 2}, .offload = both, .staged = 400},
        {.layout = {.name = "attention_zb_h1", .pp = 2, .schedule = SplitSchedule::zb_h1}, .offload = attention},
        {.layout = {.name = "attention_selective",
                    .recompute = Recompute::selective,
                    .modules = {RecomputeModule::core_attn, RecomputeModule::layernorm}},
         .offload = attention},
        {.layout = {.name = "experts_ep2_dp2", .dp = 2, .ep = 2}, .offload = every, .network = Network::mixture},
        {.layout = {.name = "experts_recomputed",
                    .recompute = Recompute::selective,
                    .modules = {RecomputeModule::moe, RecomputeModule::moe_act}},
         .offload = every,
         .network = Network::mixture},
        {.layout = {.name = "latent_attention_and_predictions"}, .offload = every, .network = Network::latent},
    };
}

INSTANTIATE_TEST_SUITE_P(Layouts, Offload, testing::ValuesIn(cases()), [](const auto& test) { return test.param.layout.name; });

/// What goes and comes back is not changed on the way: bf16 parameters, fp32 main parameters, and a state in one slice.
TEST(OffloadValues, AreThoseOfStateThatStays) {
    const Offloaded offloaded{.layout = {.name = "", .dp = 2}, .offload = {.optimizer = 1, .modules = {attn_norm, core_attn, mlp_norm}}};
    const TrainingTask task = task_of(offloaded, Precision::bf16);
    TrainingTask plain = task;
    plain.training.offload = {};
    const Outcome here = train(plain);
    Outcome there = train(task);
    for (std::size_t step = 0; step < here.steps.size(); ++step) {
        EXPECT_EQ(there.steps[step].loss, here.steps[step].loss) << step;
        EXPECT_EQ(there.steps[step].result.grad_norm, here.steps[step].result.grad_norm) << step;
    }
    EXPECT_EQ(here.host[0], 0);
    expect_prediction_equals(task, there, 1);
}

/// fp32 main parameters and two moments of bf16 parameters: 12 bytes of an element leave, and a slice of them comes back at a time.
TEST(OffloadBytes, AreTheShareThatWaits) {
    const auto held = [](const OffloadSpec& offload, std::int64_t staged) {
        return predict(task_of({.layout = {.name = "", .dp = 2}, .offload = offload, .staged = staged}, Precision::bf16), 0, nullptr);
    };
    const auto optimizer = static_cast<std::size_t>(MemoryCategory::optimizer);
    const Prediction all = held({}, kStagedElements), none = held({.optimizer = 1}, 100), half = held({.optimizer = 0.5}, 100);
    const std::int64_t bytes = all.memory.current[optimizer];
    EXPECT_EQ(bytes % 12, 0);
    EXPECT_EQ(none.memory.current[optimizer], 0);
    EXPECT_EQ(none.host, bytes);
    EXPECT_EQ(none.memory.high_water[optimizer], 12 * 100);
    const std::int64_t owned = bytes / 12, stays = (owned - owned / 2 + 63) / 64 * 64;  // ends where packs can go on
    // Between updates alone: all that waits comes back at once.
    const Prediction states = held({.states = 0.5}, 100);
    EXPECT_EQ(states.host, half.host);
    EXPECT_EQ(states.memory.current[optimizer], half.memory.current[optimizer]);
    EXPECT_EQ(states.memory.high_water[optimizer], bytes);
    EXPECT_EQ(half.host, 12 * (owned - stays));
    EXPECT_EQ(half.memory.current[optimizer], bytes - half.host);
    EXPECT_EQ(half.memory.high_water[optimizer], bytes - half.host + 12 * 100);
}

std::string refusal(const TrainingTask& task) {
    const auto features = features_not_executed(task, false);
    return features.empty() ? "" : features.front();
}

TEST(OffloadRefusals, NameWhatIsNotBuiltAndTheWayOut) {
    const auto with = [](const OffloadSpec& offload, const auto& change) {
        TrainingTask task = task_of({.layout = {.name = "", .dp = 2}, .offload = offload}, Precision::bf16);
        change(task);
        return refusal(task);
    };
    const auto nothing = [](TrainingTask&) {};
    const OffloadSpec state{.optimizer = 1}, inputs{.modules = {attn_norm, core_attn}};
    EXPECT_EQ(with(state, nothing), "");
    EXPECT_EQ(with(inputs, nothing), "");
    EXPECT_THAT(with(state, [](TrainingTask& t) { t.layout.cuda_graphs = {CudaGraphScope::layer}; }),
                AllOf(HasSubstr("--offload optimizer with CUDA graphs"), HasSubstr("--cuda-graphs none")));
    EXPECT_THAT(with(state, [](TrainingTask& t) { t.training.megatron.optimizer = OptimizerKind::muon; }), HasSubstr("with Muon"));
    EXPECT_THAT(with(inputs, [](TrainingTask& t) { t.layout.recompute = Recompute::full; }),
                HasSubstr("--offload attn_norm,core_attn with full recompute"));
    EXPECT_THAT(with(inputs, [](TrainingTask& t) { t.model.order = LayerOrder::parallel_shared_norm; }), HasSubstr("beside each other"));
    EXPECT_THAT(with({.modules = {moe_act}}, nothing), HasSubstr("a model without experts (leave out expert_fc1 and moe_act)"));
}

}  // namespace
}  // namespace mgplan::model::offload_test
