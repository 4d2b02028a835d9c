#include "tests/model/training/parity_support.hpp"

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::model {

ModelSpec small_mixture() {
    ModelSpec model;
    model.name = "small-mixture";
    model.layers = 4;
    model.hidden = 32;
    model.ffn = 48;
    model.heads = 4;
    model.kv_heads = 4;
    model.head_dim = 8;
    model.vocab = 61;
    model.vocab_divisor = 8;
    model.max_positions = 16;
    model.moe = MoeSpec{.experts = 8, .top_k = 2, .expert_ffn = 24, .shared_ffn = 16, .auxiliary_loss = 0.02};
    model.moe_layers = {false, true, true, true};
    return model;
}

ModelSpec small_sigmoid_mixture() {
    ModelSpec model = small_mixture();
    model.name = "small-sigmoid-mixture";
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.tied_embeddings = true;
    model.hidden_dropout = 0.1;
    model.moe->score = RouterScore::sigmoid;
    model.moe->top_k = 3;
    model.moe->shared_ffn = 32;
    model.moe->shared_gate = true;
    model.moe_layers = {false, true, false, true};
    return model;
}

ModelSpec small_deepseek_v3() {
    ModelSpec model = small_mixture();
    model.name = "small-deepseek-v3";
    model.head_dim = 0;
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = 12, .kv_lora_rank = 10, .qk_nope_head_dim = 6, .qk_rope_head_dim = 4, .v_head_dim = 5};
    model.moe->score = RouterScore::sigmoid;
    model.moe->groups = 4;
    model.moe->group_top_k = 2;
    model.moe->top_k = 3;
    model.moe->expert_bias = true;
    // Large, so that biases change choices within a few steps.
    model.moe->expert_bias_update_rate = 0.03;
    model.mtp_layers = 2;
    model.mtp_loss_factor = 0.5;
    model.rotary_scaling = "yarn";
    model.rotary_scaling_values = {.factor = 4, .original_positions = 8, .beta_fast = 2, .mscale = 1, .mscale_all_dim = 0.5};
    return model;
}

ModelSpec small_gpt_oss() {
    ModelSpec model = small_mixture();
    model.name = "small-gpt-oss";
    model.kv_heads = 2;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    model.attention_sinks = true;
    model.sliding_window = 5;
    model.full_attention_every = 2;
    model.moe->router_bias = true;
    model.moe->shared_ffn = 0;
    model.moe_layers = {true, true, true, true};
    model.rotary_scaling = "llama3";
    model.rotary_scaling_values = {.factor = 4, .original_positions = 8};
    return model;
}

TrainingTask task_for(const ModelSpec& model, const Case& c, Precision precision, std::int64_t sequence) {
    TrainingTask task;
    task.model = model;
    task.batch = {8, sequence};
    task.training.precision = precision;
    task.training.distributed_optimizer = c.distributed_optimizer;
    task.balanced_routing = c.balanced_routing;
    task.gradients = c.gradients;
    Layout& layout = task.layout;
    layout.sizes = {c.tp * c.cp * c.pp * c.dp, c.tp, c.cp, c.ep, model.moe ? c.etp : c.tp, c.pp, AxisOrder{}, 1};
    if (!c.order.empty()) layout.sizes.order = AxisOrder::parse(c.order);
    layout.vpp = c.vpp;
    layout.group_size = c.group_size > 0 ? c.group_size : c.pp;
    layout.micro_batch = c.micro_batch;
    layout.num_microbatches = task.batch.global_batch / (c.dp * c.micro_batch);
    layout.sequence_parallel = c.sequence_parallel;
    layout.cp_comm_type = c.cp_comm_type;
    layout.recompute = c.recompute;
    layout.recompute_modules = c.modules;
    if (c.recompute == Recompute::full) {
        layout.recompute_method = c.method;
        layout.recompute_num_layers = c.recompute_layers;
    }
    StageSplitRequest request;
    request.layers = model.layers;
    request.mtp_layers = model.mtp_layers;
    request.pp = c.pp;
    request.vpp = c.vpp;
    request.pipeline_layout = c.stages;
    layout.split = std::make_shared<const StageSplit>(
        c.stages.empty() ? automatic_stage_split(model.layers, model.mtp_layers, c.pp, c.vpp).value() : make_stage_split(request));
    return task;
}

void tokens_of(std::int64_t sequence, std::span<std::int32_t> tokens) {
    std::uint64_t state = static_cast<std::uint64_t>(sequence % 8) * 7919 + 17;
    for (auto& token : tokens) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        token = static_cast<std::int32_t>((state >> 33U) % 61);
    }
}

Outcome train(const TrainingTask& task) {
    const int ranks = static_cast<int>(task.layout.sizes.world);
    Outcome outcome;
    outcome.memory.resize(static_cast<std::size_t>(ranks));
    outcome.routing.resize(static_cast<std::size_t>(ranks));
    runtime::InProcessWorld world(ranks);
    std::mutex mutex;
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        RoutingLog routing;
        routing.watch_margins();
        RankTrainer trainer(task, device, world.view(rank), &routing);
        device.pool().restart_high_water();
        std::vector<StepReport> steps;
        for (int step = 0; step < kSteps; ++step) steps.push_back(trainer.step(tokens_of, 1e-2));
        const std::scoped_lock lock(mutex);
        outcome.memory[static_cast<std::size_t>(rank)] = device.memory();
        outcome.routing[static_cast<std::size_t>(rank)] = std::move(routing);
        if (rank == 0) outcome.steps = steps;
    });
    for (int rank = 0; rank < ranks; ++rank) outcome.traffic.push_back(world.traffic(rank));
    return outcome;
}

Prediction predict(const TrainingTask& task, int rank, RoutingLog* routing) {
    MetaDevice device({.keep_allocations = false, .keep_ops = false});
    Prediction prediction;
    RankTrainer trainer(task, device, recording_world(rank, static_cast<int>(task.layout.sizes.world), &prediction.traffic), routing);
    device.restart_high_water();
    for (int step = 0; step < kSteps; ++step) (void)trainer.step(tokens_of, 1e-2);
    prediction.memory = device.memory();
    return prediction;
}

void expect_prediction_equals(const TrainingTask& task, int rank, RoutingLog& routing, const MemoryUse& memory,
                              const CollectiveCounter& traffic) {
    // Balanced counts follow from the sizes alone.
    const Prediction predicted = predict(task, rank, task.balanced_routing ? nullptr : &routing);
    for (int i = 0; i < kMemoryCategories; ++i) {
        const auto category = static_cast<MemoryCategory>(i);
        const auto index = static_cast<std::size_t>(i);
        EXPECT_EQ(predicted.memory.high_water[index], memory.high_water[index]) << "rank " << rank << " " << to_string(category);
        EXPECT_EQ(predicted.memory.at_peak[index], memory.at_peak[index]) << "rank " << rank << " at the peak " << to_string(category);
    }
    EXPECT_EQ(predicted.memory.peak, memory.peak) << "rank " << rank;
    EXPECT_EQ(predicted.traffic.totals(), traffic.totals()) << "rank " << rank;
}

void expect_prediction_equals(const TrainingTask& task, Outcome& outcome, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    expect_prediction_equals(task, rank, outcome.routing[at], outcome.memory[at], outcome.traffic[at]);
}

const Outcome& one_rank(const ModelSpec& model, int micro_batch, Precision precision, std::int64_t sequence) {
    static std::map<std::tuple<std::string, int, Precision, std::int64_t>, Outcome> known;
    Outcome& outcome = known[{model.name, micro_batch, precision, sequence}];
    if (outcome.steps.empty()) outcome = train(task_for(model, {.name = "one", .micro_batch = micro_batch}, precision, sequence));
    return outcome;
}

void expect_equal_steps(const std::vector<StepReport>& steps, const std::vector<StepReport>& expected, double tolerance,
                        std::size_t norms) {
    ASSERT_EQ(steps.size(), expected.size());
    EXPECT_LT(expected.back().loss, expected.front().loss);
    EXPECT_GT(expected.front().result.grad_norm, 0);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(steps[i].loss / expected[i].loss, 1, tolerance) << "step " << i;
        ASSERT_EQ(steps[i].mtp_losses.size(), expected[i].mtp_losses.size());
        for (std::size_t k = 0; k < expected[i].mtp_losses.size(); ++k)
            EXPECT_NEAR(steps[i].mtp_losses[k] / expected[i].mtp_losses[k], 1, tolerance) << "step " << i << " depth " << k;
        EXPECT_NEAR(steps[i].auxiliary_loss, expected[i].auxiliary_loss, tolerance * expected[i].auxiliary_loss) << "step " << i;
        if (i < norms) {
            EXPECT_NEAR(steps[i].result.grad_norm / expected[i].result.grad_norm, 1, tolerance) << "step " << i;
        }
    }
}

}  // namespace mgplan::model
