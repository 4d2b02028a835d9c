#pragma once
// Small models whose norms, order of halves, multipliers or positions differ from a llama's.

#include <cmath>

#include "tests/support/small_training.hpp"

namespace mgplan::model::small {

/// Norms in front and behind, a GELU gate, multiplied embeddings, windows with a rotary base of their own (Gemma 3).
inline ModelSpec small_gemma() {
    ModelSpec model = tests::small_llama();
    model.name = "small-gemma";
    model.activation = Activation::gelu;
    model.qk_norm = model.post_norms = model.tied_embeddings = true;
    model.embedding_multiplier = std::sqrt(static_cast<double>(model.hidden));
    model.attention_multiplier = 0.3;
    model.sliding_window = 5;
    model.full_attention_every = 3;
    model.window_rotary_base = 100;
    return model;
}

/// Norms behind both halves alone, and over all heads of q and k (OLMo 2).
inline ModelSpec small_olmo2() {
    ModelSpec model = tests::small_llama();
    model.name = "small-olmo2";
    model.kv_heads = 4;
    model.qk_norm = model.qk_norm_full_width = model.post_norms = true;
    model.pre_norms = false;
    return model;
}

/// LayerNorm without weights and biases, queries, keys and values clipped where many reach the bound (OLMo 1); an MLP without a gate whose
/// activation has two trained values (Apertus).
inline ModelSpec small_olmo1() {
    ModelSpec model = tests::small_llama();
    model.name = "small-olmo1";
    model.normalization = Normalization::layer_norm;
    model.norm_weight = model.norm_bias = model.qk_norm = false;
    model.qkv_clip = 0.1;
    model.gated_mlp = false;
    model.activation = Activation::xielu;
    return model;
}

/// Both halves beside each other, each behind a norm of its own, biases, rotary positions on a part of each head (GPT-NeoX).
inline ModelSpec small_neox() {
    ModelSpec model = tests::small_gpt();
    model.name = "small-neox";
    model.order = LayerOrder::parallel;
    model.position = PositionEmbedding::rope;
    model.rotary_fraction = 0.5;
    model.tied_embeddings = false;
    return model;
}

/// Both halves behind one norm that has no bias, multiplied logits, windows alone rotated (Cohere 2).
inline ModelSpec small_cohere() {
    ModelSpec model = tests::small_llama();
    model.name = "small-cohere";
    model.order = LayerOrder::parallel_shared_norm;
    model.normalization = Normalization::layer_norm;
    model.norm_bias = false;
    model.tied_embeddings = true;
    model.logit_multiplier = 0.25;
    model.sliding_window = 6;
    model.full_attention_every = 2;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) model.rotary_layers.push_back(model.window_of_layer(layer) > 0);
    return model;
}

/// Multipliers of embeddings, residual stream, scores and logits, with dropout (Granite).
inline ModelSpec small_granite() {
    ModelSpec model = tests::small_llama();
    model.name = "small-granite";
    model.embedding_multiplier = 12;
    model.residual_multiplier = 0.22;
    model.attention_multiplier = 0.1;
    model.logit_multiplier = 1 / 8.0;
    model.hidden_dropout = 0.1;
    return model;
}

/// A list of layers with a window that follows no period (the window falls on layers 0 and 1).
inline ModelSpec small_listed_windows() {
    ModelSpec model = tests::small_llama();
    model.name = "small-listed-windows";
    model.sliding_window = 4;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) model.window_layers.push_back(layer < 2);
    return model;
}

}  // namespace mgplan::model::small
