#include "tests/model/training/parity_support.hpp"

#include <map>
#include <memory>
#include <tuple>

#include <gtest/gtest.h>

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

Outcome train(const TrainingTask& task) {
    return tests::train_ranks(
        task, kSteps, [](int) { return std::make_unique<runtime::CpuDevice>(); }, true);
}

Prediction predict(const TrainingTask& task, int rank, RoutingLog* routing) {
    return tests::predict_rank(task, rank, kSteps, {}, routing);
}

void expect_prediction_equals(const TrainingTask& task, int rank, RoutingLog& routing, const MemoryUse& memory,
                              const CollectiveCounter& traffic, std::int64_t host) {
    // Balanced counts follow from the sizes alone.
    const Prediction predicted = predict(task, rank, task.balanced_routing ? nullptr : &routing);
    for (int i = 0; i < kMemoryCategories; ++i) {
        const auto category = static_cast<MemoryCategory>(i);
        const auto index = static_cast<std::size_t>(i);
        EXPECT_EQ(predicted.memory.high_water[index], memory.high_water[index]) << "rank " << rank << " " << to_string(category);
        EXPECT_EQ(predicted.memory.at_peak[index], memory.at_peak[index]) << "rank " << rank << " at the peak " << to_string(category);
    }
    EXPECT_EQ(predicted.memory.peak, memory.peak) << "rank " << rank;
    EXPECT_EQ(predicted.host, host) << "rank " << rank << " on the host";
    EXPECT_EQ(predicted.traffic.totals(), traffic.totals()) << "rank " << rank;
}

void expect_prediction_equals(const TrainingTask& task, Outcome& outcome, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    expect_prediction_equals(task, rank, outcome.routing[at], outcome.memory[at], outcome.traffic[at], outcome.host[at]);
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
