#include "formats/hugging_face/weight_name_table.hpp"

#include <array>

namespace mgplan::formats {
namespace {

constexpr WeightNames named_as_llama(std::string_view type) {
    return {.type = type};
}

constexpr WeightNames named_as_gemma(std::string_view type) {
    return {.type = type, .mlp_norm = "pre_feedforward_layernorm", .norms_around_0 = true};
}

constexpr WeightNames named_as_gpt(std::string_view type, bool transposed) {
    return {.type = type,
            .embedding = "transformer.wte",
            .positions = "transformer.wpe",
            .final_norm = "transformer.ln_f",
            .layers = "transformer.h.",
            .input_norm = "ln_1",
            .mlp_norm = "ln_2",
            .attention = "attn.",
            .qkv_rows = QkvRows::joined,
            .qkv = "c_attn",
            .attention_output = "c_proj",
            .up = "c_fc",
            .down = "c_proj",
            .transposed = transposed,
            .unused_endings = ".attn.bias .attn.masked_bias"};
}

constexpr WeightNames granite_experts(std::string_view type) {
    return {.type = type,
            .mlp = "shared_mlp.",
            .down = "output_linear",
            .gate_and_up = "input_linear",
            .mixture = "block_sparse_moe.",
            .router = "router.layer",
            .expert_rows = ExpertRows::stacked,
            .stacked_first = "input_linear.weight",
            .stacked_last = "output_linear.weight",
            .shared = "shared_mlp.",
            .shared_gate_and_up = "input_linear",
            .shared_down = "output_linear"};
}

constexpr WeightNames mixtral_experts(std::string_view type) {
    return {.type = type,
            .mixture = "block_sparse_moe.",
            .router_choice_bias = "e_score_correction_bias",
            .expert_gate = "w1",
            .expert_up = "w3",
            .expert_down = "w2"};
}

constexpr WeightNames qwen_experts(std::string_view type) {
    return {.type = type, .shared = "mlp.shared_expert."};
}

constexpr WeightNames named_as_delta(std::string_view type, DeltaRows rows) {
    return {.type = type,
            .shared = "mlp.shared_expert.",
            .mixer = "linear_attn.",
            .delta_rows = rows,
            .norms_around_0 = true,
            .unused_beginning = "mtp."};
}

constexpr WeightNames named_as_lfm2(std::string_view type) {
    return {.type = type,
            .final_norm = "model.embedding_norm",
            .input_norm = "operator_norm",
            .mlp_norm = "ffn_norm",
            .attention_output = "out_proj",
            .q_norm = "q_layernorm",
            .k_norm = "k_layernorm",
            .mlp = "feed_forward.",
            .gate = "w1",
            .up = "w3",
            .down = "w2",
            .mixture = "feed_forward.",
            .router_choice_bias = "expert_bias",
            .expert_gate = "w1",
            .expert_up = "w3",
            .expert_down = "w2",
            .mixer = "conv."};
}

constexpr std::array kWeightNames{
    named_as_llama("arcee"),
    WeightNames{.type = "aria_text",
                .router = "router",
                .expert_rows = ExpertRows::stacked_transposed,
                .stacked_first = "experts.fc1.weight",
                .stacked_last = "experts.fc2.weight"},
    WeightNames{.type = "bamba", .final_norm = "model.final_layernorm", .mlp_norm = "pre_ff_layernorm", .mlp = "feed_forward."},
    named_as_llama("cohere"),
    named_as_llama("cohere2"),
    named_as_llama("cwm"),
    named_as_llama("deepseek_v2"),
    WeightNames{.type = "deepseek_v3", .layer_behind = true},
    named_as_llama("dots1"),
    named_as_llama("ernie4_5"),
    named_as_llama("exaone4"),
    WeightNames{.type = "falcon_h1",
                .final_norm = "model.final_layernorm",
                .mlp_norm = "pre_ff_layernorm",
                .mlp = "feed_forward.",
                .mixer = "mamba."},
    named_as_llama("flex_olmo"),
    WeightNames{.type = "gemma", .norms_around_0 = true},
    named_as_gemma("gemma2"),
    named_as_gemma("gemma3_text"),
    WeightNames{.type = "glm", .gate_and_up = "gate_up_proj"},
    WeightNames{.type = "glm4",
                .attention_post_norm = "post_self_attn_layernorm",
                .mlp_post_norm = "post_mlp_layernorm",
                .gate_and_up = "gate_up_proj"},
    WeightNames{.type = "glm4_moe", .layer_behind = true},
    WeightNames{.type = "glm4_moe_lite", .layer_behind = true},
    named_as_gpt("gpt2", true),
    named_as_gpt("gpt_bigcode", false),
    WeightNames{.type = "gpt_neox",
                .embedding = "gpt_neox.embed_in",
                .final_norm = "gpt_neox.final_layer_norm",
                .output = "embed_out",
                .layers = "gpt_neox.layers.",
                .attention = "attention.",
                .qkv_rows = QkvRows::by_head,
                .qkv = "query_key_value",
                .attention_output = "dense",
                .up = "dense_h_to_4h",
                .down = "dense_4h_to_h",
                .unused_endings = ".attention.bias .attention.masked_bias"},
    WeightNames{.type = "gpt_oss",
                .router = "router",
                .expert_rows = ExpertRows::stacked_pairs,
                .stacked_first = "experts.gate_up_proj",
                .stacked_last = "experts.down_proj"},
    named_as_llama("granite"),
    named_as_llama("granite_swa"),
    granite_experts("granitemoe"),
    granite_experts("granitemoehybrid"),
    granite_experts("granitemoeshared"),
    named_as_llama("helium"),
    WeightNames{.type = "hunyuan_v1_dense", .q_norm = "query_layernorm", .k_norm = "key_layernorm"},
    WeightNames{.type = "hyperclovax", .attention_post_norm = "post_norm1", .mlp_post_norm = "post_norm2"},
    named_as_llama("jais2"),
    WeightNames{.type = "kimi_linear",
                .mixture = "block_sparse_moe.",
                .expert_gate = "w1",
                .expert_up = "w3",
                .expert_down = "w2",
                .shared = "block_sparse_moe.shared_experts.",
                .mixer = "self_attn."},
    named_as_lfm2("lfm2"),
    named_as_lfm2("lfm2_moe"),
    named_as_llama("llama"),
    WeightNames{.type = "mamba2",
                .embedding = "backbone.embeddings",
                .final_norm = "backbone.norm_f",
                .layers = "backbone.layers.",
                .input_norm = "norm",
                .mixer = "mixer."},
    named_as_llama("minicpm3"),
    mixtral_experts("minimax_m2"),
    named_as_llama("ministral"),
    named_as_llama("mistral"),
    mixtral_experts("mixtral"),
    WeightNames{.type = "nemotron", .norms_around_0 = true},
    WeightNames{.type = "nemotron_h",
                .embedding = "backbone.embeddings",
                .final_norm = "backbone.norm_f",
                .layers = "backbone.layers.",
                .input_norm = "norm",
                .mlp_norm = "norm",
                .attention = "mixer.",
                .mlp = "mixer.",
                .mixture = "mixer.",
                .shared = "mixer.shared_experts.",
                .mixer = "mixer.",
                .unused_beginning = "mtp."},
    named_as_llama("olmo2"),
    named_as_llama("olmo3"),
    named_as_llama("olmoe"),
    WeightNames{.type = "opt",
                .embedding = "model.decoder.embed_tokens",
                .positions = "model.decoder.embed_positions",
                .first_position = 2,
                .final_norm = "model.decoder.final_layer_norm",
                .layers = "model.decoder.layers.",
                .input_norm = "self_attn_layer_norm",
                .mlp_norm = "final_layer_norm",
                .attention_output = "out_proj",
                .mlp = "",
                .up = "fc1",
                .down = "fc2"},
    WeightNames{.type = "phi3", .qkv_rows = QkvRows::joined, .qkv = "qkv_proj", .gate_and_up = "gate_up_proj"},
    named_as_llama("qwen2"),
    qwen_experts("qwen2_moe"),
    named_as_llama("qwen3"),
    named_as_delta("qwen3_5_moe_text", DeltaRows::by_part),
    named_as_delta("qwen3_5_text", DeltaRows::by_part),
    named_as_llama("qwen3_moe"),
    named_as_delta("qwen3_next", DeltaRows::by_head),
    named_as_llama("seed_oss"),
    named_as_llama("smollm3"),
    named_as_llama("solar_open"),
    named_as_llama("stablelm"),
    WeightNames{.type = "starcoder2", .up = "c_fc", .down = "c_proj"},
    WeightNames{.type = "vaultgemma", .mlp_norm = "pre_feedforward_layernorm", .norms_around_0 = true},
    named_as_llama("youtu"),
};

}  // namespace

std::span<const WeightNames> weight_name_table() {
    return kWeightNames;
}

}  // namespace mgplan::formats
