#pragma once
// The one builder of models that tests make up, and the small ones that train in a moment.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "plan/model/model_spec.hpp"

namespace mgplan::tests {

/// Sizes of a model made up for a test, as fields of ModelSpec.
struct ModelSizes {
    std::int64_t layers = 0, hidden = 0, ffn = 0, heads = 0;
    std::int64_t kv_heads = 0;  ///< 0: as many as heads
    std::int64_t head_dim = 0, vocab = 0;
    std::int64_t vocab_divisor = ModelSpec{}.vocab_divisor;
    std::int64_t max_positions = 0;
};

/// Llama: untied, rotary, RMSNorm, gated, no bias.
[[nodiscard]] inline ModelSpec llama_of(std::string name, const ModelSizes& sizes) {
    ModelSpec model;
    model.name = std::move(name);
    model.layers = sizes.layers;
    model.hidden = sizes.hidden;
    model.ffn = sizes.ffn;
    model.heads = sizes.heads;
    model.kv_heads = sizes.kv_heads == 0 ? sizes.heads : sizes.kv_heads;
    model.head_dim = sizes.head_dim;
    model.vocab = sizes.vocab;
    model.vocab_divisor = sizes.vocab_divisor;
    model.max_positions = sizes.max_positions;
    return model;
}

/// GPT: LayerNorm, learned positions, GELU without a gate, every bias; untied.
[[nodiscard]] inline ModelSpec gpt_of(std::string name, const ModelSizes& sizes) {
    ModelSpec model = llama_of(std::move(name), sizes);
    model.activation = Activation::gelu;
    model.gated_mlp = false;
    model.normalization = Normalization::layer_norm;
    model.position = PositionEmbedding::learned;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

/// `scale` multiplies widths and places. The vocabulary is padded to a multiple of 8·tp.
[[nodiscard]] inline ModelSizes small_sizes(int scale = 1) {
    return {.layers = 4,
            .hidden = 32 * scale,
            .ffn = 48 * scale,
            .heads = 4,
            .head_dim = 8 * scale,
            .vocab = 61,
            .vocab_divisor = 8,
            .max_positions = 16 * scale};
}

/// GPT with a tied table.
[[nodiscard]] inline ModelSpec small_gpt(int scale = 1) {
    ModelSpec model = gpt_of("small-gpt", small_sizes(scale));
    model.tied_embeddings = true;
    return model;
}

/// Llama with grouped kv heads.
[[nodiscard]] inline ModelSpec small_llama(int scale = 1) {
    ModelSpec model = llama_of("small-llama", small_sizes(scale));
    model.kv_heads = 2;
    return model;
}

/// A Llama whose tokens are bytes, as data without a tokenizer has them.
[[nodiscard]] inline ModelSpec byte_llama(std::int64_t layers) {
    return llama_of(
        "small-llama",
        {.layers = layers, .hidden = 32, .ffn = 48, .heads = 4, .kv_heads = 2, .head_dim = 8, .vocab = 256, .max_positions = 16});
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
