#pragma once
// Small models whose layers are of several kinds.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/parameters/model_adapter.hpp"
#include "tests/support/small_training.hpp"

namespace mgplan::model::small {

/// Halves of layers over the hidden size of small_llama().
inline mgplan::Mamba2 mamba2_mixer() {
    return {.inner_width = 48, .heads = 4, .groups = 2, .state_size = 5, .conv_taps = 4};
}
inline mgplan::GatedDeltaNet delta_net() {
    return {.key_heads = 2, .key_dim = 6, .value_heads = 4, .value_dim = 5, .conv_taps = 4};
}
inline mgplan::Attention attention_mixer(bool gated, bool rotary) {
    mgplan::Attention attention{.heads = 4, .kv_heads = 2, .head_dim = 8, .output_gate = gated};
    if (gated) attention.qk_norm = QkNorm::shared_by_heads;
    if (rotary) attention.rotary.emplace();
    return attention;
}
/// SiLU where it is gated, else squared ReLU.
inline Activation activation_of(bool gated) {
    return gated ? Activation::silu : Activation::squared_relu;
}
inline mgplan::Mlp mlp(std::int64_t width, bool gated) {
    return {.width = width, .activation = activation_of(gated), .gated = gated};
}
/// Experts as the model's fields say.
inline mgplan::Mixture experts(bool gated) {
    return {.activation = activation_of(gated), .gated = gated};
}
/// A kind of layer; either half may be missing.
inline NamedLayer kind(std::string name, std::optional<mgplan::Mixer> mixer, std::optional<mgplan::FeedForward> feed_forward = {}) {
    Layer layer;
    layer.mixer = std::move(mixer);
    layer.feed_forward = std::move(feed_forward);
    return {std::move(name), without_fields(layer)};
}

/// `layers`: for each layer the number of its kind.
inline ModelSpec hybrid(const std::string& name, std::vector<NamedLayer> kinds, std::vector<std::uint16_t> layers) {
    ModelSpec model = tests::small_llama();
    model.name = model.type = name;
    model.kinds = std::move(kinds);
    model.kind_of_layer = std::move(layers);
    model.layers = static_cast<std::int64_t>(model.kind_of_layer.size());
    return model;
}

/// Which layers have experts.
inline void set_moe_layers(ModelSpec& model) {
    for (const auto kind : model.kind_of_layer) model.moe_layers.push_back(model.kinds.at(kind).name.ends_with("moe"));
}

inline ModelSpec small_mamba2() {
    ModelSpec model = hybrid("small-mamba2", {kind("mamba2", mamba2_mixer())}, {0, 0, 0, 0});
    model.position = PositionEmbedding::none;
    model.tied_embeddings = true;
    return model;
}

/// Each layer one of Mamba-2, attention without positions, squared ReLU (Nemotron-H); the norm of Mamba-2 is left out in one kind.
inline ModelSpec small_nemotron_h() {
    mgplan::Mamba2 plain = mamba2_mixer();
    plain.norm = false;
    ModelSpec model = hybrid("small-nemotron-h",
                             {kind("mamba2", mamba2_mixer()), kind("attention", attention_mixer(false, false)),
                              kind("mlp", {}, mlp(48, false)), kind("mamba2 without a norm", plain)},
                             {0, 2, 1, 3, 2, 0});
    model.position = PositionEmbedding::none;
    return model;
}

/// The same with experts behind a sigmoid, moved by their bias, and a shared one (Nemotron 3).
inline ModelSpec small_nemotron_h_moe() {
    ModelSpec model = hybrid(
        "small-nemotron-h-moe",
        {kind("mamba2", mamba2_mixer()), kind("attention", attention_mixer(false, false)), kind("moe", {}, experts(false))}, {0, 2, 1, 2});
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .shared_ffn = 16, .expert_bias = true, .score = RouterScore::sigmoid};
    model.moe->expert_bias_update_rate = 0.03;
    set_moe_layers(model);
    return model;
}

/// The same with depths of multi-token prediction, each attention and experts in one layer, which the decoder lacks (Nemotron 3 Super). Its
/// last layer is Mamba-2.
inline ModelSpec small_nemotron_predicting(std::int64_t depths) {
    ModelSpec model = small_nemotron_h_moe();
    model.name = model.type = "small-nemotron-predicting";
    model.kind_of_layer = {1, 2, 2, 0};
    model.moe_layers = {false, true, true, false};
    model.mtp_layers = depths;
    model.kind_of_prediction = static_cast<std::uint16_t>(model.kinds.size());
    model.kinds.push_back(kind("attention+moe", attention_mixer(false, false), experts(false)));
    return model;
}

/// The same with experts between maps to a smaller width and back (Nemotron 3 Super).
inline ModelSpec small_nemotron_latent() {
    ModelSpec model = small_nemotron_h_moe();
    model.name = model.type = "small-nemotron-latent";
    model.moe->latent = 12;
    return model;
}

/// Gated delta nets that write up to twice as strongly, and attention without positions whose norms stand behind it and over all heads
/// (OLMo hybrid).
inline ModelSpec small_olmo_hybrid() {
    mgplan::Attention attention = attention_mixer(false, false);
    attention.qk_norm = QkNorm::full_width;
    mgplan::GatedDeltaNet delta = delta_net();
    delta.strength = 2;
    ModelSpec model =
        hybrid("small-olmo-hybrid", {kind("gated_delta_net+mlp", delta, mlp(48, true)), kind("attention+mlp", attention, mlp(48, true))},
               {0, 0, 1, 0});
    model.kinds.back().layer.norms.before = false;
    model.kinds.back().layer.norms.after = true;
    model.position = PositionEmbedding::none;
    model.state_norm_epsilon = 1e-3;
    return model;
}

/// Gated delta nets, every second layer attention with a gate of its output, experts with a gated shared one; the last layer has an MLP
/// (Qwen3-Next).
inline ModelSpec small_qwen3_next() {
    ModelSpec model =
        hybrid("small-qwen3-next",
               {kind("gated_delta_net+moe", delta_net(), experts(true)), kind("attention+moe", attention_mixer(true, true), experts(true)),
                kind("gated_delta_net+mlp", delta_net(), mlp(48, true))},
               {0, 1, 0, 2});
    model.rotary_fraction = 0.5;
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .shared_ffn = 16, .shared_gate = true, .auxiliary_loss = 0.02};
    set_moe_layers(model);
    return model;
}

/// Mamba-2 or attention with rotary positions on half of each head, an MLP in every layer (Bamba); multipliers as in Granite 4 H.
inline ModelSpec small_bamba() {
    ModelSpec model =
        hybrid("small-bamba",
               {kind("mamba2+mlp", mamba2_mixer(), mlp(48, true)), kind("attention+mlp", attention_mixer(false, true), mlp(48, true))},
               {0, 1, 0, 0});
    model.rotary_fraction = 0.5;
    model.hidden_dropout = 0.1;
    model.embedding_multiplier = 3;
    model.residual_multiplier = 0.5;
    model.attention_multiplier = 0.2;
    model.logit_multiplier = 0.25;
    return model;
}

/// Short convolutions, and attention with QK-norm in one layer, an MLP in every layer (LFM2).
inline ModelSpec small_lfm2() {
    mgplan::Attention attention = attention_mixer(false, true);
    attention.qk_norm = QkNorm::shared_by_heads;
    ModelSpec model = hybrid("small-lfm2",
                             {kind("short_convolution+mlp", mgplan::ShortConvolution{.conv_taps = 3}, mlp(48, true)),
                              kind("attention+mlp", attention, mlp(48, true))},
                             {0, 0, 1, 0});
    model.tied_embeddings = true;
    return model;
}

/// The same with experts behind a dense layer, chosen by sigmoids with a bias (LFM2 8B-A1B).
inline ModelSpec small_lfm2_moe() {
    ModelSpec model = small_lfm2();
    model.name = model.type = "small-lfm2-moe";
    const std::optional<mgplan::Mixer> attention = model.kinds[1].layer.mixer;
    model.kinds.pop_back();  // no attention in front of an MLP
    model.kinds.push_back(kind("short_convolution+moe", model.kinds[0].layer.mixer, experts(true)));
    model.kinds.push_back(kind("attention+moe", attention, experts(true)));
    model.kind_of_layer = {0, 1, 2, 1};
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .expert_bias = true, .score = RouterScore::sigmoid};
    model.moe->expert_bias_update_rate = 0.03;
    set_moe_layers(model);
    return model;
}

/// Attention and Mamba-2 beside each other in every layer, and multipliers of all that they and the MLP compute (Falcon-H1).
inline ModelSpec small_falcon_h1() {
    mgplan::AttentionBesideMamba2 both{.attention = attention_mixer(false, true), .mamba2 = mamba2_mixer()};
    both.mamba2.norm = false;
    ModelSpec model = hybrid("small-falcon-h1", {kind("attention and mamba2+mlp", both, mlp(48, true))}, {0, 0, 0, 0});
    model.embedding_multiplier = 3;
    model.attention_multiplier = 0.2;
    model.logit_multiplier = 0.25;
    model.branch_multipliers = {.attention_output = 0.6,
                                .state_output = 0.8,
                                .state_gate = 0.5,
                                .state_input = 1.2,
                                .state_write = 0.9,
                                .state_read = 1.5,
                                .state_step = 0.75,
                                .mlp_gate = 0.7,
                                .mlp_output = 1.6};
    return model;
}

/// Kimi delta attention, one layer of latent attention without positions, experts behind a dense layer (Kimi Linear).
inline ModelSpec small_kimi_linear() {
    const mgplan::KimiDeltaAttention delta{.heads = 4, .head_dim = 6, .conv_taps = 4};
    ModelSpec model = hybrid("small-kimi-linear",
                             {kind("kimi_delta_attention+mlp", delta, mlp(48, true)),
                              kind("latent_attention+moe", mgplan::LatentAttention{.heads = 4}, experts(true)),
                              kind("kimi_delta_attention+moe", delta, experts(true))},
                             {0, 2, 1, 2});
    model.position = PositionEmbedding::none;
    model.mla = MlaSpec{.kv_lora_rank = 10, .qk_nope_head_dim = 8, .qk_rope_head_dim = 4, .v_head_dim = 6, .norm_epsilon = 1e-6};
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .shared_ffn = 16, .expert_bias = true, .score = RouterScore::sigmoid};
    model.moe->expert_bias_update_rate = 0.03;
    set_moe_layers(model);
    return model;
}

/// Lightning attention and softmax attention before experts, on a residual path that carries what the norms give (MiniMax-01).
inline ModelSpec small_minimax() {
    ModelSpec model = hybrid("small-minimax",
                             {kind("lightning_attention+moe", mgplan::LightningAttention{.heads = 4, .head_dim = 6}, experts(true)),
                              kind("attention+moe", attention_mixer(false, true), experts(true))},
                             {0, 0, 1, 0});
    model.normed_residual = {.attention = {1.4, 0.8}, .state = {1.7, 0.9}, .mlp = {1.2, 0.7}};
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .auxiliary_loss = 0.01};
    set_moe_layers(model);
    return model;
}

}  // namespace mgplan::model::small
