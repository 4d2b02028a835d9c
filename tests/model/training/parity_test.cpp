// Every layout trains the same model: losses and gradient norms of a few steps equal those of one rank, and every byte
// held and sent equals what the same code predicts on shapes alone.

#include <string>

#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/errors.hpp"
#include "tests/model/training/parity_support.hpp"

namespace mgplan::model {
namespace {

ModelSpec small_gpt() {
    ModelSpec model;
    model.name = "small-gpt";
    model.layers = 4;
    model.hidden = 32;
    model.ffn = 48;
    model.heads = 4;
    model.kv_heads = 4;
    model.head_dim = 8;
    model.vocab = 61;  // padded to a multiple of 8·tp
    model.vocab_divisor = 8;
    model.max_positions = 16;
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.tied_embeddings = true;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

ModelSpec small_llama() {
    ModelSpec model = small_gpt();
    model.name = "small-llama";
    model.kv_heads = 2;
    model.activation = Activation::silu;
    model.gated_mlp = true;
    model.normalization = Normalization::rms_norm;
    model.position = PositionEmbedding::rope;
    model.tied_embeddings = false;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    model.qk_norm = true;
    return model;
}

std::vector<Case> cases() {
    using enum RecomputeModule;
    return {
        {.name = "dp2", .dp = 2},
        {.name = "dp4_plain", .dp = 4, .distributed_optimizer = false},
        {.name = "mbs2", .micro_batch = 2},
        {.name = "tp2", .tp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "pp2", .pp = 2},
        {.name = "pp4", .pp = 4},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp4_ring", .cp = 4},
        {.name = "cp2_gather", .cp = 2, .cp_comm_type = CpCommType::all_gather},
        {.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a},
        {.name = "core", .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "mlp_norm", .recompute = Recompute::selective, .modules = {mlp, layernorm}},
        {.name = "full", .recompute = Recompute::full},
        {.name = "full2_tp2_sp", .tp = 2, .sequence_parallel = true, .recompute = Recompute::full, .recompute_layers = 2},
        {.name = "block", .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 2},
        {.name = "tp2_dp2", .tp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2", .tp = 2, .cp = 2, .pp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2_dp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_pp2_vpp2_dp2", .tp = 2, .pp = 2, .vpp = 2, .dp = 2, .micro_batch = 2},
        {.name = "pp4_dp2_mbs2", .pp = 4, .dp = 2},
    };
}

class Parity : public testing::TestWithParam<std::tuple<bool, Case>> {};

TEST_P(Parity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [llama, c] = GetParam();
    const ModelSpec model = llama ? small_llama() : small_gpt();
    const TrainingTask task = task_for(model, c, Precision::fp64);
    Outcome outcome = train(task);
    expect_equal_steps(outcome.steps, one_rank(model, 1).steps, 1e-10);
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Parity, testing::Combine(testing::Bool(), testing::ValuesIn(cases())), [](const auto& test) {
    return std::string(std::get<0>(test.param) ? "Llama_" : "Gpt_") + std::get<1>(test.param).name;
});

TEST(RankTrainer, RefusesAPlanForAnotherWorld) {
    const TrainingTask task = task_for(small_gpt(), {.name = "dp2", .dp = 2}, Precision::fp32);
    MetaDevice device;
    EXPECT_THROW(RankTrainer(task, device, recording_world(0, 4)), ConfigError);
}

TEST(RankTrainer, NamesTheFeatureItCannotTrain) {
    ModelSpec model = small_llama();
    model.sliding_window = 8;
    const TrainingTask task = task_for(model, {.name = "one"}, Precision::fp32);
    MetaDevice device;
    try {
        RankTrainer trainer(task, device, recording_world(0, 1));
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_NE(std::string(error.what()).find("sliding window of 8 tokens"), std::string::npos);
    }
}

}  // namespace
}  // namespace mgplan::model
