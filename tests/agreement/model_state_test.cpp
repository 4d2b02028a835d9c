// Model state as the simulator adds it up against what a rank's buffers and optimizer allocate: byte for byte.

#include "simulator/memory/model_state.hpp"

#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "plan/training/data_sharding.hpp"
#include "planner/constraints.hpp"

namespace mgplan::simulator::model_state_test {
namespace {

using model::MemoryCategory;

struct Case {
    std::string name;
    const char* model;
    std::int64_t world;
    int tp = 1, cp = 1, pp = 1, vpp = 1, ep = 1;
    bool distributed = true;
    Precision precision = Precision::bf16;
    Dtype gradients = Dtype::fp32;
    Dtype moments = Dtype::fp32;
    OptimizerKind optimizer = OptimizerKind::adam;
    OffloadSpec offload{};
    Fp8Recipe recipe = Fp8Recipe::tensorwise;
    bool fp8_parameters = false;
};

Case with(Fp8Recipe recipe, Case c) {
    c.name += recipe == Fp8Recipe::delayed ? "_delayed" : "_current";
    c.recipe = recipe;
    return c;
}

Case stored_in_fp8(Case c) {
    c.name += "_stored";
    c.fp8_parameters = true;
    return c;
}

Case with(OptimizerKind optimizer, Case c) {
    c.name += "_" + std::string(to_string(optimizer));
    c.optimizer = optimizer;
    return c;
}
Case offloaded(double share, Case c) {
    c.name += "_offloaded";
    c.offload.optimizer = share;
    return c;
}
Case waiting(double share, Case c) {
    c.name += "_waiting";
    c.offload.states = share;
    return c;
}
Case with_muon(Case c) {
    return with(OptimizerKind::muon, std::move(c));
}

std::int64_t held(const model::BytesByCategory& bytes, MemoryCategory category) {
    return bytes[static_cast<std::size_t>(category)];
}

Workload workload_of(const Case& c) {
    Workload work;
    work.model = formats::load_model(c.model).model;
    work.world = c.world;
    work.confine_tp = false;
    work.batch = {c.world * 2, 64};
    work.training.precision = c.precision;
    work.training.megatron.fp8_recipe = c.recipe;
    work.training.fp8_parameters = c.fp8_parameters;
    work.training.grad_dtype = c.gradients;
    work.training.exp_avg_dtype = work.training.exp_avg_sq_dtype = c.moments;
    work.training.distributed_optimizer = c.distributed;
    work.training.megatron.optimizer = c.optimizer;
    work.training.offload = c.offload;
    return work;
}

LayoutRequest request_of(const Case& c) {
    LayoutRequest request;
    request.tp = c.tp;
    request.cp = c.cp;
    request.pp = c.pp;
    request.vpp = c.vpp;
    request.ep = c.ep;
    request.etp = 1;
    request.sequence_parallel = c.tp > 1;
    return request;
}

void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

class ModelStateOf : public testing::TestWithParam<Case> {};

TEST_P(ModelStateOf, IsWhatARankAllocates) {
    const Workload work = workload_of(GetParam());
    const Layout layout = planner::make_layout(request_of(GetParam()), work);
    model::TrainingTask task;
    task.model = work.model;
    task.batch = work.batch;
    task.training = work.training;
    task.layout = layout;
    ModelStates states(work);
    for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
        const std::int64_t rank = first_rank_of_stage(layout.sizes, stage);
        model::MetaDevice device({.keep_allocations = false, .keep_ops = false});
        model::RankTrainer trainer(task, device, model::recording_world(static_cast<int>(rank), static_cast<int>(work.world)));
        const ModelStateBytes& state = states.of(layout, stage);
        EXPECT_EQ(state.parameters, held(device.memory().current, MemoryCategory::parameters)) << "stage " << stage;
        EXPECT_EQ(state.gradients, held(device.memory().current, MemoryCategory::gradients)) << "stage " << stage;
        EXPECT_EQ(state.optimizer, held(device.memory().current, MemoryCategory::optimizer)) << "stage " << stage;
        EXPECT_EQ(state.host, device.host_peak()) << "stage " << stage;
        if (work.world > 8) continue;  // a step of the small ones
        (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0);
        EXPECT_EQ(state.optimizer + state.update, held(device.memory().high_water, MemoryCategory::optimizer)) << "stage " << stage;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ModelStateOf,
    testing::Values(
        Case{"gpt_alone", "tiny-gpt", 1}, Case{"gpt_dp3", "tiny-gpt", 3}, Case{"gpt_pp2", "tiny-gpt", 6, 1, 1, 2},
        Case{"gpt_pp2_not_distributed", "tiny-gpt", 2, 1, 1, 2, 1, 1, false}, Case{"llama_tp2_cp2", "tiny-llama", 8, 2, 2},
        Case{"llama_fp32", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::fp32},
        Case{"llama_fp64", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::fp64},
        Case{"llama_fp8_tp2", "tiny-llama", 4, 2, 1, 1, 1, 1, true, Precision::fp8},
        Case{"gpt_fp8_pp2_not_distributed", "tiny-gpt", 2, 1, 1, 2, 1, 1, false, Precision::fp8},
        with(Fp8Recipe::delayed, {"llama_fp8_tp2", "tiny-llama", 4, 2, 1, 1, 1, 1, true, Precision::fp8}),
        with(Fp8Recipe::delayed, {"gpt_fp8_pp2", "tiny-gpt", 2, 1, 1, 2, 1, 1, true, Precision::fp8}),
        Case{"qwen_moe_fp8", "qwen3-30b-a3b", 96, 1, 1, 2, 1, 16, true, Precision::fp8},
        with(Fp8Recipe::delayed, {"qwen_moe_fp8", "qwen3-30b-a3b", 96, 1, 1, 2, 1, 16, true, Precision::fp8}),
        Case{"deepseek_fp8", "deepseek-v2-lite", 16, 2, 1, 1, 1, 8, true, Precision::fp8},
        stored_in_fp8({"llama_fp8_tp2", "tiny-llama", 4, 2, 1, 1, 1, 1, true, Precision::fp8}),
        stored_in_fp8({"llama_fp8_dp5_vpp2", "tiny-llama", 10, 1, 1, 2, 2, 1, true, Precision::fp8}),
        stored_in_fp8({"qwen_moe_fp8", "qwen3-30b-a3b", 96, 1, 1, 2, 1, 16, true, Precision::fp8}),
        stored_in_fp8(with(Fp8Recipe::delayed, {"deepseek_fp8", "deepseek-v2-lite", 16, 2, 1, 1, 1, 8, true, Precision::fp8})),
        Case{"llama_bf16_gradients", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::bf16, Dtype::bf16},
        Case{"llama_bf16_moments", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::bf16, Dtype::bf16, Dtype::bf16},
        Case{"llama8b_dp7", "llama3-8b", 7}, Case{"llama8b_not_distributed", "llama3-8b", 4, 2, 1, 1, 1, 1, false},
        Case{"llama405b", "llama3.1-405b", 1008, 8, 1, 9, 7},
        Case{"llama405b_cp2", "llama3.1-405b", 4032, 8, 2, 9, 2, 1, true, Precision::bf16, Dtype::bf16},
        Case{"mixtral", "mixtral-8x7b", 48, 2, 1, 4, 2, 2}, Case{"mixtral_not_distributed", "mixtral-8x7b", 16, 1, 1, 2, 1, 8, false},
        Case{"qwen_moe", "qwen3-30b-a3b", 96, 1, 1, 2, 1, 16}, Case{"nemotron_h", "nemotron-h-8b", 16, 2, 1, 2},
        Case{"nemotron_h_not_distributed", "nemotron-h-8b", 4, 1, 1, 4, 1, 1, false}, with_muon({"gpt_dp3", "tiny-gpt", 3}),
        with_muon({"gpt_pp2", "tiny-gpt", 6, 1, 1, 2}), with_muon({"llama_plain", "tiny-llama", 2, 1, 1, 1, 1, 1, false}),
        with_muon({"llama_tp2_cp2", "tiny-llama", 8, 2, 2}),
        with_muon({"llama_fp32", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::fp32}),
        with_muon({"llama_fp64", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::fp64}),
        with_muon({"llama_bf16_gradients", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::bf16, Dtype::bf16}),
        with_muon({"llama_bf16_moments", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::bf16, Dtype::bf16, Dtype::bf16}),
        with_muon({"llama405b", "llama3.1-405b", 1008, 8, 1, 9, 7}), with_muon({"mixtral", "mixtral-8x7b", 48, 2, 1, 4, 2, 2}),
        with_muon({"qwen_moe", "qwen3-30b-a3b", 96, 1, 1, 2, 1, 16}), with_muon({"nemotron_h", "nemotron-h-8b", 16, 2, 1, 2}),
        with_muon({"qwen3_next", "qwen3-next-80b-a3b", 96, 2, 1, 2, 1, 16}), with(OptimizerKind::sgd, {"gpt_dp3", "tiny-gpt", 3}),
        with(OptimizerKind::lion, {"llama_fp64", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::fp64}),
        offloaded(1, {"gpt_dp3", "tiny-gpt", 3}), offloaded(0.3, {"llama_tp2_cp2", "tiny-llama", 8, 2, 2}),
        offloaded(0.5, {"llama8b_not_distributed", "llama3-8b", 4, 2, 1, 1, 1, 1, false}),
        offloaded(0.7, {"llama_bf16_gradients", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::bf16, Dtype::bf16}),
        offloaded(1, {"mixtral", "mixtral-8x7b", 48, 2, 1, 4, 2, 2}),
        offloaded(1, {"llama_fp64", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::fp64}), waiting(1, {"gpt_dp3", "tiny-gpt", 3}),
        waiting(0.3, {"llama_tp2_cp2", "tiny-llama", 8, 2, 2}), waiting(1, {"mixtral", "mixtral-8x7b", 48, 2, 1, 4, 2, 2}),
        with(OptimizerKind::lion, {"llama_bf16", "tiny-llama", 5, 1, 1, 1, 1, 1, true, Precision::bf16, Dtype::bf16})),
    [](const auto& instance) { return instance.param.name; });

/// Sharded gradients and parameters: what a step holds at its most, for units come and go with the passes.
TEST(ModelStateOf, ShardedUnitsIsTheMostThatAStepHolds) {
    struct Sharded {
        Case layout;
        DataShardingChoice sharding{DataSharding::full};
        bool overlap = true;
    };
    for (const auto& [c, sharding, overlap] :
         {Sharded{{"", "tiny-llama", 3}}, Sharded{{"", "tiny-llama", 3}, {DataSharding::full}, false},
          Sharded{{"", "tiny-llama", 4, 1, 1, 2}, {DataSharding::optimizer_gradients}}, Sharded{{"", "tiny-llama", 8, 2, 2, 1}},
          Sharded{{"", "tiny-llama", 8, 1, 1, 2, 2}, {DataSharding::hybrid, 2}},
          Sharded{{"", "tiny-llama", 4, 1, 1, 1, 1, 1, true, Precision::bf16, Dtype::bf16}}}) {
        Workload work = workload_of(c);
        set_data_sharding(sharding, work.training);
        work.training.overlap_grad_reduce = work.training.overlap_param_gather = overlap;
        const Layout layout = planner::make_layout(request_of(c), work);
        model::TrainingTask task;
        task.model = work.model;
        task.batch = work.batch;
        task.training = work.training;
        task.layout = layout;
        ModelStates states(work);
        for (int stage = 0; stage < static_cast<int>(layout.sizes.pp); ++stage) {
            const auto rank = static_cast<int>(first_rank_of_stage(layout.sizes, stage));
            model::MetaDevice device({.keep_allocations = false, .keep_ops = false});
            model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(work.world)));
            device.restart_high_water();
            (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0);
            const ModelStateBytes& state = states.of(layout, stage);
            SCOPED_TRACE(testing::Message() << to_string(sharding.kind) << " of " << c.world << ", stage " << stage);
            EXPECT_EQ(state.parameters, held(device.memory().high_water, MemoryCategory::parameters));
            EXPECT_EQ(state.gradients, held(device.memory().high_water, MemoryCategory::gradients));
            EXPECT_EQ(state.optimizer, held(device.memory().current, MemoryCategory::optimizer));
            EXPECT_EQ(state.optimizer + state.update, held(device.memory().high_water, MemoryCategory::optimizer));
        }
    }
}

/// Several optimizer instances have no trainer but with sharded gradients: buffers and optimizer of one rank, put together here.
TEST(ModelStateOf, SeveralInstancesIsWhatBuffersAndOptimizerOfOneAllocate) {
    Workload work = workload_of({"", "mixtral-8x7b", 64, 2, 1, 2, 1, 4});
    work.training.distributed_optimizer_instances = 2;
    LayoutRequest request = request_of({"", "", 64, 2, 1, 2, 1, 4});
    const Layout layout = planner::make_layout(request, work);
    ModelStates states(work);
    for (int stage = 0; stage < 2; ++stage) {
        model::MetaDevice device({.keep_allocations = false, .keep_ops = false});
        const model::BufferOptions options = model::buffer_options(layout, work.training, stage, 0);
        model::ChunkBuffers chunk(device, stage_parameters(work.model, layout, stage)[0], Dtype::bf16, options);
        model::RecordingCommunicator dp("dp-cp", static_cast<int>(options.dp), 0), edp("expert:dp", static_cast<int>(options.edp), 0);
        model::RecordingCommunicator tp("tp", 2, 0), one("model", 4, 0);
        model::RecordingCommunicator etp("expert:tp", static_cast<int>(layout.sizes.etp), 0);
        EXPECT_EQ(options.dp, 8);
        EXPECT_EQ(options.edp, 4);
        const model::Optimizer optimizer(
            device, {&chunk}, {.dp_cp = &dp, .expert_dp = &edp, .model = &one, .tp = &tp, .expert_model = &one, .etp = &etp}, {}, true);
        const ModelStateBytes& state = states.of(layout, stage);
        EXPECT_EQ(state.parameters, held(device.memory().current, MemoryCategory::parameters));
        EXPECT_EQ(state.gradients, held(device.memory().current, MemoryCategory::gradients));
        EXPECT_EQ(state.optimizer, held(device.memory().current, MemoryCategory::optimizer));
    }
}

}  // namespace
}  // namespace mgplan::simulator::model_state_test
