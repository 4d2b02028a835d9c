#pragma once
// Small models whose layers are described by parts.

#include <string>

#include "tests/support/small_training.hpp"

namespace mgplan::model::small {

/// Parts of layers over the hidden size of small_llama(), and the final norm beside them.
inline LayerPart part_norm(std::int64_t copies) {
    return {"norm", {{"width", 32}, {"copies", copies}}};
}
inline LayerPart part_mamba2() {
    return {"mamba2", {{"inner", 48}, {"heads", 4}, {"groups", 2}, {"state", 5}, {"conv", 4}}};
}
inline LayerPart part_delta_net() {
    return {"gated_delta_net", {{"key_heads", 2}, {"key_dim", 6}, {"value_heads", 4}, {"value_dim", 5}, {"conv", 4}}};
}
/// positions: 1 none, 2 rotary.
inline LayerPart part_attention(bool gated, std::int64_t positions) {
    LayerPart part{"attention", {{"heads", 4}, {"kv_heads", 2}, {"head_dim", 8}, {"positions", positions}}};
    if (gated) part.sizes["output_gate"] = part.sizes["qk_norm"] = 1;
    return part;
}
/// SiLU where it is gated, else squared ReLU.
inline std::int64_t activation_number(bool gated) {
    return 1 + static_cast<std::int64_t>(gated ? Activation::silu : Activation::squared_relu);
}
inline LayerPart part_mlp(std::int64_t width, bool gated) {
    return {"mlp", {{"width", width}, {"gated", gated ? 1 : 0}, {"activation", activation_number(gated)}}};
}
inline LayerPart part_experts(bool gated) {
    return {"experts", {{"experts", 8}, {"top_k", 3}, {"width", 24}, {"gated", gated ? 1 : 0}, {"activation", activation_number(gated)}}};
}

/// `layers`: for each layer the number of its kind.
inline ModelSpec hybrid(const std::string& name, std::vector<LayerComposition> kinds, std::vector<std::uint16_t> layers) {
    ModelSpec model = tests::small_llama();
    model.name = model.type = name;
    model.compositions = std::move(kinds);
    model.composition_of_layer = std::move(layers);
    model.layers = static_cast<std::int64_t>(model.composition_of_layer.size());
    model.beside_layers = {part_norm(1)};
    return model;
}

/// Which layers have experts.
inline void set_moe_layers(ModelSpec& model) {
    for (const auto kind : model.composition_of_layer) model.moe_layers.push_back(model.compositions.at(kind).name.ends_with("moe"));
}

inline ModelSpec small_mamba2() {
    ModelSpec model = hybrid("small-mamba2", {{"mamba2", {part_norm(1), part_mamba2()}}}, {0, 0, 0, 0});
    model.position = PositionEmbedding::none;
    model.tied_embeddings = true;
    return model;
}

/// Each layer one of Mamba-2, attention without positions, squared ReLU (Nemotron-H); the norm of Mamba-2 is left out in one kind.
inline ModelSpec small_nemotron_h() {
    LayerPart plain = part_mamba2();
    plain.sizes["norm"] = 0;
    ModelSpec model = hybrid("small-nemotron-h",
                             {{"mamba2", {part_norm(1), part_mamba2()}},
                              {"attention", {part_norm(1), part_attention(false, 1)}},
                              {"mlp", {part_norm(1), part_mlp(48, false)}},
                              {"mamba2 without a norm", {part_norm(1), plain}}},
                             {0, 2, 1, 3, 2, 0});
    model.position = PositionEmbedding::none;
    return model;
}

/// The same with experts behind a sigmoid, moved by their bias, and a shared one (Nemotron 3).
inline ModelSpec small_nemotron_h_moe() {
    ModelSpec model = hybrid("small-nemotron-h-moe",
                             {{"mamba2", {part_norm(1), part_mamba2()}},
                              {"attention", {part_norm(1), part_attention(false, 1)}},
                              {"moe", {part_norm(1), part_experts(false), part_mlp(16, false)}}},
                             {0, 2, 1, 2});
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
    model.composition_of_layer = {1, 2, 2, 0};
    model.moe_layers = {false, true, true, false};
    model.mtp_layers = depths;
    LayerComposition pair{"attention+moe", {part_norm(2)}};
    for (const std::size_t half : {1, 2}) {
        const std::vector<LayerPart>& parts = model.compositions[half].parts;
        pair.parts.insert(pair.parts.end(), parts.begin() + 1, parts.end());
    }
    model.composition_of_prediction = static_cast<std::uint16_t>(model.compositions.size());
    model.compositions.push_back(std::move(pair));
    return model;
}

/// The same with experts between maps to a smaller width and back (Nemotron 3 Super).
inline ModelSpec small_nemotron_latent() {
    ModelSpec model = small_nemotron_h_moe();
    model.name = model.type = "small-nemotron-latent";
    LayerComposition& sparse = model.compositions.back();
    sparse.parts[1].sizes["in"] = 12;
    sparse.parts.push_back({"linear", {{"in", 32}, {"out", 12}}});
    sparse.parts.push_back({"linear", {{"in", 12}, {"out", 32}}});
    model.moe->latent = 12;
    return model;
}

/// Gated delta nets that write up to twice as strongly, and attention without positions whose norms stand behind it and over all heads
/// (OLMo hybrid).
inline ModelSpec small_olmo_hybrid() {
    LayerPart attention = part_attention(false, 1), delta = part_delta_net(), behind = part_norm(2);
    attention.sizes["qk_norm"] = 3;
    delta.sizes["strength"] = 2;
    behind.sizes["behind"] = 1;
    ModelSpec model = hybrid(
        "small-olmo-hybrid",
        {{"gated_delta_net+mlp", {part_norm(2), delta, part_mlp(48, true)}}, {"attention+mlp", {behind, attention, part_mlp(48, true)}}},
        {0, 0, 1, 0});
    model.position = PositionEmbedding::none;
    model.state_norm_epsilon = 1e-3;
    return model;
}

/// Gated delta nets, every second layer attention with a gate of its output, experts with a gated shared one; the last layer has an MLP
/// (Qwen3-Next).
inline ModelSpec small_qwen3_next() {
    const std::vector<LayerPart> sparse{part_experts(true), part_mlp(16, true), {"linear", {{"in", 32}, {"out", 1}}}};
    const auto with = [&](const LayerPart& mixer) {
        std::vector<LayerPart> parts{part_norm(2), mixer};
        parts.insert(parts.end(), sparse.begin(), sparse.end());
        return parts;
    };
    ModelSpec model = hybrid("small-qwen3-next",
                             {{"gated_delta_net+moe", with(part_delta_net())},
                              {"attention+moe", with(part_attention(true, 2))},
                              {"gated_delta_net+mlp", {part_norm(2), part_delta_net(), part_mlp(48, true)}}},
                             {0, 1, 0, 2});
    model.rotary_fraction = 0.5;
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .shared_ffn = 16, .shared_gate = true, .auxiliary_loss = 0.02};
    set_moe_layers(model);
    return model;
}

/// Mamba-2 or attention with rotary positions on half of each head, an MLP in every layer (Bamba); multipliers as in Granite 4 H.
inline ModelSpec small_bamba() {
    ModelSpec model = hybrid("small-bamba",
                             {{"mamba2+mlp", {part_norm(2), part_mamba2(), part_mlp(48, true)}},
                              {"attention+mlp", {part_norm(2), part_attention(false, 2), part_mlp(48, true)}}},
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
    LayerPart attention = part_attention(false, 2);
    attention.sizes["qk_norm"] = 1;
    const LayerPart conv{"short_convolution", {{"conv", 3}}};
    ModelSpec model = hybrid("small-lfm2",
                             {{"short_convolution+mlp", {part_norm(2), conv, part_mlp(48, true)}},
                              {"attention+mlp", {part_norm(2), attention, part_mlp(48, true)}}},
                             {0, 0, 1, 0});
    model.tied_embeddings = true;
    return model;
}

/// The same with experts behind a dense layer, chosen by sigmoids with a bias (LFM2 8B-A1B).
inline ModelSpec small_lfm2_moe() {
    ModelSpec model = small_lfm2();
    model.name = model.type = "small-lfm2-moe";
    for (const std::size_t kind : {std::size_t{0}, std::size_t{1}}) {
        LayerComposition sparse = model.compositions[kind];
        sparse.name = kind == 0 ? "short_convolution+moe" : "attention+moe";
        sparse.parts.back() = part_experts(true);
        model.compositions.push_back(sparse);
    }
    model.compositions.erase(model.compositions.begin() + 1);  // no attention in front of an MLP
    model.composition_of_layer = {0, 1, 2, 1};
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .expert_bias = true, .score = RouterScore::sigmoid};
    model.moe->expert_bias_update_rate = 0.03;
    set_moe_layers(model);
    return model;
}

/// Attention and Mamba-2 beside each other in every layer, and multipliers of all that they and the MLP compute (Falcon-H1).
inline ModelSpec small_falcon_h1() {
    LayerPart both = part_mamba2();
    both.kind = "attention_beside_mamba2";
    both.sizes["norm"] = 0;
    both.sizes["query_heads"] = 4;
    both.sizes["kv_heads"] = 2;
    both.sizes["head_dim"] = 8;
    ModelSpec model = hybrid("small-falcon-h1", {{"attention and mamba2+mlp", {part_norm(2), both, part_mlp(48, true)}}}, {0, 0, 0, 0});
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
    const LayerPart delta{"kimi_delta_attention", {{"heads", 4}, {"head_dim", 6}, {"conv", 4}}};
    const LayerPart latent{"latent_attention", {{"heads", 4}, {"kv_lora_rank", 10}, {"qk_nope", 8}, {"qk_rope", 4}, {"v_head_dim", 6}}};
    ModelSpec model = hybrid("small-kimi-linear",
                             {{"kimi_delta_attention+mlp", {part_norm(2), delta, part_mlp(48, true)}},
                              {"latent_attention+moe", {part_norm(2), latent, part_experts(true), part_mlp(16, true)}},
                              {"kimi_delta_attention+moe", {part_norm(2), delta, part_experts(true), part_mlp(16, true)}}},
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
    const LayerPart lightning{"lightning_attention", {{"heads", 4}, {"head_dim", 6}}};
    ModelSpec model = hybrid("small-minimax",
                             {{"lightning_attention+moe", {part_norm(2), lightning, part_experts(true)}},
                              {"attention+moe", {part_norm(2), part_attention(false, 2), part_experts(true)}}},
                             {0, 0, 1, 0});
    model.normed_residual = {.attention = {1.4, 0.8}, .state = {1.7, 0.9}, .mlp = {1.2, 0.7}};
    model.moe = MoeSpec{.experts = 8, .top_k = 3, .expert_ffn = 24, .auxiliary_loss = 0.01};
    set_moe_layers(model);
    return model;
}

}  // namespace mgplan::model::small
