#pragma once
// Mixtures that train in a moment, each with what a family of published ones has.

#include "plan/model/model_spec.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::model {

/// One dense layer, then three mixtures with a shared expert; softmax scores.
[[nodiscard]] inline ModelSpec small_mixture() {
    ModelSpec model = tests::llama_of("small-mixture", tests::small_sizes());
    model.moe = MoeSpec{.experts = 8, .top_k = 2, .expert_ffn = 24, .shared_ffn = 16, .auxiliary_loss = 0.02};
    model.moe_layers = {false, true, true, true};
    return model;
}

/// Sigmoid scores, a gate on the shared expert, plain activation, layer norms, a tied table, dense and mixture layers in turn.
[[nodiscard]] inline ModelSpec small_sigmoid_mixture() {
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

/// DeepSeek-V3 in small: latent attention with YaRN, expert bias, experts in groups, two depths of multi-token prediction.
[[nodiscard]] inline ModelSpec small_deepseek_v3() {
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

/// gpt-oss in small: sinks, a window in every other layer, biases of router and experts.
[[nodiscard]] inline ModelSpec small_gpt_oss() {
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

}  // namespace mgplan::model
