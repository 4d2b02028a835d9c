#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "formats/hugging_face/hugging_face.hpp"
#include "formats/model_source.hpp"
#include "plan/parameters/parameters.hpp"
#include "simulator/cost_model.hpp"
#include "tests/simulator/round_numbers.hpp"

namespace mgplan::simulator::model_flops_test {
namespace {

/// What Megatron-LM's training.py, num_floating_point_operations, adds up, without the norms of latents and MTP.
double closed_form(const ModelSpec& model, const BatchSpec& batch) {
    const double h = static_cast<double>(model.hidden);
    const double heads = static_cast<double>(model.heads);
    const double sequence = static_cast<double>(batch.sequence);
    const double qk = static_cast<double>(model.qk_head_dim()), v = static_cast<double>(model.v_head_dim());
    // Multiply-adds per token of one layer's attention.
    double attention = 0;
    if (model.mla) {
        const MlaSpec& mla = *model.mla;
        const double q_rank = static_cast<double>(mla.q_lora_rank), kv_rank = static_cast<double>(mla.kv_lora_rank);
        const double rope = static_cast<double>(mla.qk_rope_head_dim), nope = static_cast<double>(mla.qk_nope_head_dim);
        attention += q_rank > 0 ? h * q_rank + q_rank * heads * qk : h * heads * qk;
        attention += h * (kv_rank + rope) + kv_rank * heads * (nope + v);
    } else {
        attention += h * (heads * qk + static_cast<double>(model.kv_heads) * (qk + v));
    }
    attention += heads * v * h;
    attention += heads * (qk + v) * sequence / 2;  // causal half of QK^T and PV
    const double gated = model.gated_mlp ? 3 : 2;
    const double dense = gated * h * static_cast<double>(model.ffn);
    double mixture = 0;
    if (model.moe) {
        mixture = gated * h * (static_cast<double>(model.moe->top_k * model.moe->expert_ffn) + static_cast<double>(model.moe->shared_ffn));
    }
    double layers = 0;
    for (std::int64_t i = 0; i < model.layers; ++i) layers += attention + (model.is_moe_layer(i) ? mixture : dense);
    const double logits = h * static_cast<double>(model.padded_vocab(1));
    const double last_mlp = model.layers > 0 && model.is_moe_layer(model.layers - 1) ? mixture : dense;
    const double mtp = static_cast<double>(model.mtp_layers) * (attention + last_mlp + 2 * h * h + logits);
    // Two FLOPs per multiply-add; the backward pass costs twice the forward.
    return 6 * (layers + logits + mtp) * static_cast<double>(batch.global_batch) * sequence;
}

TEST(ModelFlops, OfEveryPresetsRecordAreTheClosedForm) {
    for (const std::string& preset : formats::preset_names()) {
        const ModelSpec model = formats::load_model(preset).model;
        if (model.mla && model.mla->index_heads > 0) continue;  // tests/simulator/indexer_costs_test.cpp
        if (!model.kinds.empty()) continue;                     // HybridCosts.ModelFlopsAreThoseOfTheClosedForm
        for (const std::int64_t sequence : {std::int64_t{1024}, std::int64_t{4096}}) {
            const BatchSpec batch{.global_batch = 16, .sequence = sequence};
            const double expected = closed_form(model, batch);
            EXPECT_NEAR(model_flops(model, batch), expected, 1e-6 * expected) << preset;
        }
    }
}

TEST(ModelFlops, OfAGptAreTheFormulaOfNarayananWithTheCausalHalf) {
    // arXiv 2104.04473, equation 3 without recompute: 72·b·s·l·h²·(1 + s/(6h) + V/(12·l·h)), s halved by the causal mask.
    const double l = 24, h = 1024, sequence = 512, batch = 8, vocab = 1024;
    const double expected = 72 * batch * sequence * l * h * h * (1 + sequence / 2 / (6 * h) + vocab / (12 * l * h));
    EXPECT_DOUBLE_EQ(model_flops(gpt(24), {.global_batch = 8, .sequence = 512}), expected);
}

TEST(ModelFlops, OfPublishedModelsAreThoseOfTheDeepSeekMoePaper) {
    // arXiv 2401.06066, tables 3 and 4: "FLOPs per 4K Tokens", forward and backward, in trillions. It counts the half of the scores that
    // the causal mask takes away; they are added here. Sizes of DeepSeekMoE 16B: section 5.
    ModelSpec moe16b = formats::load_model("deepseek-v2-lite").model;
    moe16b.mla.reset();
    moe16b.layers = 28;
    moe16b.hidden = 2048;
    moe16b.ffn = 10'944;
    moe16b.heads = moe16b.kv_heads = 16;
    moe16b.head_dim = 128;
    moe16b.qk_norm = false;
    moe16b.moe->experts = 64;
    moe16b.moe->top_k = 6;
    moe16b.moe->expert_ffn = 1408;
    moe16b.moe->shared_ffn = 2 * 1408;
    moe16b.moe_layers.assign(28, true);
    moe16b.moe_layers.front() = false;
    EXPECT_NEAR(static_cast<double>(total_parameters(moe16b)) / 1e9, 16.4, 0.05);
    EXPECT_NEAR(static_cast<double>(active_parameters(moe16b)) / 1e9, 2.8, 0.05);
    constexpr std::int64_t kSequence = 4096;
    for (const auto& [model, published] : {std::pair{moe16b, 74.4}, {formats::load_model("llama2-7b").model, 187.9}}) {
        const double masked = 6.0 * static_cast<double>(model.layers * model.heads * model.head_dim * kSequence) * kSequence;
        const double flops = model_flops(model, {.global_batch = 1, .sequence = kSequence}) + masked;
        EXPECT_NEAR(flops / 1e12 / published, 1, 0.02) << published;
    }
}

TEST(ModelFlops, CountTheExpertsThatATokenUsesAndNoRouter) {
    const ModelSpec model = mixture(3);
    ModelSpec denser = model;
    denser.moe->top_k = 3;
    const double per_expert = 6.0 * 3 * 1024 * 512;  // three matrices of hidden x expert width
    EXPECT_DOUBLE_EQ(model_flops(denser, {.global_batch = 1, .sequence = 512}) - model_flops(model, {.global_batch = 1, .sequence = 512}),
                     2 * 512 * per_expert);
    denser = model;
    denser.moe->experts = 64;
    EXPECT_DOUBLE_EQ(model_flops(denser, {.global_batch = 1, .sequence = 512}), model_flops(model, {.global_batch = 1, .sequence = 512}));
}

TEST(ModelFlops, OfGroupedQueriesSaveTheSharedKeysAndValues) {
    ModelSpec grouped = gpt(1);
    grouped.kv_heads = 4;
    EXPECT_DOUBLE_EQ(model_flops(gpt(1), {.global_batch = 1, .sequence = 512}) - model_flops(grouped, {.global_batch = 1, .sequence = 512}),
                     6.0 * 512 * 1024 * 2 * 12 * 64);
}

TEST(ModelFlops, OfLatentAttentionFollowItsProjections) {
    ModelSpec model = gpt(1);
    model.mla = MlaSpec{.q_lora_rank = 256, .kv_lora_rank = 128, .qk_nope_head_dim = 64, .qk_rope_head_dim = 32, .v_head_dim = 64};
    const double down = 1024 * (256 + 128 + 32), up = 256 * 16 * 96 + 128 * 16 * (64 + 64), out = 16 * 64 * 1024;
    const double core = 16 * (96 + 64) * 512 / 2.0, mlp = 2 * 1024 * 4096, logits = 1024 * 1024;
    EXPECT_DOUBLE_EQ(model_flops(model, {.global_batch = 1, .sequence = 512}), 6 * 512 * (down + up + out + core + mlp + logits));
}

TEST(ModelFlops, OfAPredictionLayerAreALayerAProjectionAndTheHeadAgain) {
    ModelSpec model = gpt(2);
    model.mtp_layers = 1;
    const BatchSpec one{.global_batch = 1, .sequence = 512};
    const double layer = model_flops(gpt(3), one) - model_flops(gpt(2), one);
    EXPECT_DOUBLE_EQ(model_flops(model, one) - model_flops(gpt(2), one), layer + 6.0 * 512 * (2 * 1024 * 1024 + 1024 * 1024));
}

TEST(ModelFlops, MatchPublishedPairsOfTokensAndTflops) {
    // Megatron-Bridge performance summary, NeMo 26.04.01, Llama 3 70B on GB200 at 8192 tokens, and Llama 3.1 405B on H100,
    // NeMo 26.06: both printed per GPU.
    ModelSpec llama = gpt(80);
    llama.gated_mlp = true;
    llama.hidden = 8192;
    llama.ffn = 28672;
    llama.heads = 64;
    llama.kv_heads = 8;
    llama.head_dim = 128;
    llama.vocab = 128256;
    EXPECT_NEAR(4224 * model_flops(llama, {.global_batch = 1, .sequence = 8192}) / 8192 / 1e12, 1892, 0.005 * 1892);
    llama.layers = 126;
    llama.hidden = 16384;
    llama.ffn = 53248;
    llama.heads = 128;
    EXPECT_NEAR(326 * model_flops(llama, {.global_batch = 1, .sequence = 8192}) / 8192 / 1e12, 822, 0.005 * 822);
}

// Tokens and TFLOPs per second and GPU that stand beside each other in NVIDIA-NeMo/Megatron-Bridge@067f987:docs/performance-summary.md and
// performance-summary-archive.md (releases 26.06 and 26.08). gpt-oss is not among them: its windows count there, and not here.
TEST(ModelFlops, OfMixturesAndHybridsMatchPublishedPairs) {
    struct Pair {
        const char* name;
        std::int64_t sequence;
        double tokens, tflops;
    };
    for (const Pair& pair : {Pair{"deepseek-v3", 4096, 6288, 1635}, Pair{"kimi-k2", 4096, 5372, 1099},
                             Pair{"qwen3-30b-a3b", 4096, 44544, 1029}, Pair{"qwen3-235b-a22b", 4096, 8816, 1306}}) {
        const ModelSpec model = formats::load_model(pair.name).model;
        const double token = model_flops(model, {.global_batch = 1, .sequence = pair.sequence}) / static_cast<double>(pair.sequence);
        EXPECT_NEAR(token * pair.tokens / 1e12 / pair.tflops, 1, 0.03) << pair.name;
    }
}

// The same of Nemotron 3 Nano and Super. Megatron-LM's count of hybrids takes attention whole, without the causal mask.
ModelSpec nemotron3_nano() {
    return formats::load_model("nemotron-3-nano-30b-a3b").model;
}

ModelSpec nemotron3_super() {
    return formats::load_model("nemotron-3-super-120b-a12b").model;
}

TEST(ModelFlops, OfAHybridMatchThePublishedPairWithAttentionWhole) {
    const ModelSpec model = nemotron3_nano();
    EXPECT_NEAR(static_cast<double>(total_parameters(model)) / 1e9, 31.6, 0.05);
    EXPECT_NEAR(static_cast<double>(active_parameters(model)) / 1e9, 3.6, 0.05);
    const double sequence = 8192, attention_layers = 6, other_half = 6 * attention_layers * 32 * (128 + 128) * sequence / 2;
    const double token = model_flops(model, {.global_batch = 1, .sequence = 8192}) / sequence;
    EXPECT_NEAR((token + other_half) * 40960 / 1e12 / 905, 1, 0.02);
}

/// One sequence of a Nemotron 3 as NVIDIA-NeMo/Automodel@36044ad counts it (nemo_automodel/components/utils/flops_utils.py,
/// _hybrid_model_flops): attention as wide as the hidden size, though its heads are wider or narrower together, and routers too.
double as_automodel_counts(const ModelSpec& model, std::int64_t sequence, double attention_layers, double mixtures) {
    const double s = static_cast<double>(sequence), h = static_cast<double>(model.hidden), heads = 32, groups = 2, dim = 128;
    const auto attention = [&](double queries, double keys) { return 6 * s * (h * (2 * queries + 2 * keys) + queries * s); };
    return model_flops(model, {.global_batch = 1, .sequence = sequence}) +
           attention_layers * (attention(h, groups / heads * h) - attention(heads * dim, groups * dim)) +
           mixtures * 6 * s * h * static_cast<double>(model.moe->experts);
}

// FLOPs of one sequence of 2,048 tokens in its tests/unit_tests/utils/test_flops_utils.py; tokens and TFLOPs per second and GPU beside each
// other in its docs/performance-summary.mdx (H100, 4,096 tokens, where the printed figure has three digits).
TEST(ModelFlops, OfHybridsAreThoseThatAutomodelPublishes) {
    const ModelSpec nano = nemotron3_nano(), super = nemotron3_super();
    // Its card: 120 B parameters, of which a token passes 12 B, without multi-token prediction.
    EXPECT_NEAR(static_cast<double>(total_parameters(super)) / 1e9, 120, 1);
    EXPECT_NEAR(static_cast<double>(active_parameters(super)) / 1e9, 12.5, 0.5);
    EXPECT_NEAR(as_automodel_counts(nano, 2048, 6, 23) / 39'982'504'869'888, 1, 1e-6);
    EXPECT_NEAR(as_automodel_counts(super, 2048, 8, 40) / 152'918'015'606'784, 1, 1e-6);
    EXPECT_NEAR(as_automodel_counts(nano, 4096, 6, 23) / 4096 * 16'789 / 1e12 / 328, 1, 0.015);
    EXPECT_NEAR(as_automodel_counts(super, 4096, 8, 40) / 4096 * 4'497 / 1e12 / 334, 1, 0.015);
}

/// Qwen3.5 at the sizes of test_flops_utils_new_models.py, 16 layers of which every fourth attends; `sizes`: of its feed-forward.
double qwen35_flops(const nlohmann::ordered_json& sizes) {
    auto config = nlohmann::ordered_json::parse(R"({"model_type": "qwen3_5_text", "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 151936, "head_dim": 128, "linear_key_head_dim": 64,
        "linear_value_head_dim": 128, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4, "max_position_embeddings": 4096, "tie_word_embeddings": false})");
    config.update(sizes);
    return model_flops(formats::read_hugging_face(config, "qwen", "qwen").model, {.global_batch = 1, .sequence = 1024});
}

// Gated delta nets by a count that is not ours: of states value heads by the square of their width, here twice the keys'.
TEST(ModelFlops, OfGatedDeltaNetsAreThoseOfAutomodelsTests) {
    EXPECT_NEAR(qwen35_flops({{"model_type", "qwen3_5_moe_text"},
                              {"num_experts", 64},
                              {"num_experts_per_tok", 4},
                              {"moe_intermediate_size", 1024},
                              {"shared_expert_intermediate_size", 2048}}) /
                    6'200'003'395'584,
                1, 0.01);
    EXPECT_NEAR(qwen35_flops({{"intermediate_size", 5632}}) / 5'890'765'750'272, 1, 0.01);
}

}  // namespace
}  // namespace mgplan::simulator::model_flops_test
