#pragma once
// Models that train in a moment.

#include <cstddef>
#include <cstdint>

#include "plan/model/model_spec.hpp"

namespace mgplan::tests {

/// GPT: tied table, learned positions, LayerNorm, biases. `scale` multiplies its widths and its places.
[[nodiscard]] inline ModelSpec small_gpt(int scale = 1) {
    ModelSpec model;
    model.name = "small-gpt";
    model.layers = 4;
    model.hidden = 32 * scale;
    model.ffn = 48 * scale;
    model.heads = 4;
    model.kv_heads = 4;
    model.head_dim = 8 * scale;
    model.vocab = 61;  // padded to a multiple of 8·tp
    model.vocab_divisor = 8;
    model.max_positions = 16 * scale;
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.tied_embeddings = true;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

/// Llama: untied, rotary, RMSNorm, gated, grouped kv heads.
[[nodiscard]] inline ModelSpec small_llama(int scale = 1) {
    ModelSpec model = small_gpt(scale);
    model.name = "small-llama";
    model.kv_heads = 2;
    model.activation = Activation::silu;
    model.gated_mlp = true;
    model.normalization = Normalization::rms_norm;
    model.position = PositionEmbedding::rope;
    model.tied_embeddings = false;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    return model;
}

/// A Llama whose tokens are bytes, as data without a tokenizer has them; what is not set is as in ModelSpec.
[[nodiscard]] inline ModelSpec byte_llama(std::int64_t layers) {
    ModelSpec model;
    model.name = "small-llama";
    model.layers = layers;
    model.hidden = 32;
    model.ffn = 48;
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 8;
    model.vocab = 256;
    model.max_positions = 16;
    return model;
}

/// Gives the layers behind the first `dense` ones four experts, of which two see each token.
inline MoeSpec& add_experts(ModelSpec& model, std::int64_t dense = 0) {
    MoeSpec& moe = model.moe.emplace();
    moe.experts = 4;
    moe.top_k = 2;
    moe.expert_ffn = 24;
    model.moe_layers.assign(static_cast<std::size_t>(model.layers), true);
    for (std::int64_t layer = 0; layer < dense; ++layer) model.moe_layers[static_cast<std::size_t>(layer)] = false;
    return moe;
}

}  // namespace mgplan::tests
