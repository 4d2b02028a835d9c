// Layers with a state along the sequence: state-space models, delta nets, linear attention.

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "formats/hugging_face/composer.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
std::int64_t step_rank(Composer& c, std::string_view field) {
    const auto* const rank = c.config().member(field, {JsonKind::number, JsonKind::text});
    if (rank != nullptr && rank->is_number()) return c.number({field});
    if (rank != nullptr && *rank != "auto")
        c.config().problem("{} = {} is not known; give auto, or a whole number", field, shown_json(*rank));
    return (c.hidden() + 15) / 16;
}

void compose_mamba(Composer& c) {
    const std::int64_t inner = c.number_or({"intermediate_size"}, c.number_or({"expand"}, 2) * c.hidden());
    // Falcon Mamba has norms of what the steps come from, of B and of C, without weights (modeling_falcon_mamba.py).
    const bool normed = c.model().type == "falcon_mamba";
    c.model().position = PositionEmbedding::none;
    (void)c.config().real_or({"mixer_rms_eps"}, 0, 0, 1);
    LayerPiece mixer = c.mixer(Mamba{.inner_width = inner,
                                     .state_size = c.size({"state_size"}),
                                     .conv_taps = c.size({"conv_kernel"}),
                                     .dt_rank = step_rank(c, "time_step_rank"),
                                     .conv_bias = c.flag({"use_conv_bias"}, true),
                                     .inner_norms = normed ? InnerNorms::unweighted : InnerNorms::none});
    if (c.flag({"use_bias"}, false)) mixer.add_biases({"mixer.in_proj", "mixer.out_proj"});
    c.add_equal_layers("mamba", {c.norm(), mixer});
}

void compose_mamba2(Composer& c) {
    const Mamba2 sizes{.inner_width = c.number_or({"expand"}, 2) * c.hidden(),
                       .heads = c.size({"num_heads"}),
                       .groups = c.size({"n_groups"}),
                       .state_size = c.size({"state_size"}),
                       .conv_taps = c.size({"conv_kernel"})};
    const LayerPiece mixer = c.with_mamba2(sizes, c.flag({"use_conv_bias"}, true), c.flag({"use_bias"}, false));
    c.model().position = PositionEmbedding::none;
    c.leave_out_step_limits();
    c.add_equal_layers("mamba2", {c.norm(), mixer});
}

void compose_bamba(Composer& c) {
    const LayerPiece mamba = c.with_mamba2(c.mamba2_by_fields(c.number_or({"mamba_expand"}, 2) * c.hidden(), true),
                                           c.flag({"mamba_conv_bias"}, true), c.flag({"mamba_proj_bias"}, false));
    c.set_activation({"hidden_act"}, Activation::silu);
    const LayerPiece attention = c.mixer(c.plain_attention(true, c.flag({"attention_bias"}, false)));
    const LayerPiece mlp = c.typed_mlp(c.number({"intermediate_size"}), true, c.flag({"mlp_bias"}, false));
    c.leave_out_step_limits();
    std::set<std::int64_t> attends;
    for (const auto layer : c.config().integers("attn_layer_indices", 0, ModelLimits::layers)) attends.insert(layer);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool full = attends.contains(layer);
        c.add_layer(full ? "attention+mlp" : "mamba2+mlp", {c.norm(2), full ? attention : mamba, mlp});
    }
}

void compose_granite_hybrid(Composer& c) {
    const LayerPiece mamba = c.with_mamba2(c.mamba2_by_fields(c.number_or({"mamba_expand"}, 2) * c.hidden(), true),
                                           c.flag({"mamba_conv_bias"}, true), c.flag({"mamba_proj_bias"}, false));
    const std::string positions = c.config().text_or({"position_embedding_type"}, "");
    const bool rotary = positions == "rope";
    if (!rotary && !positions.empty() && positions != "nope")
        c.config().problem("position_embedding_type = '{}' is not known; use rope or nope", positions.substr(0, 40));
    if (!rotary) c.model().position = PositionEmbedding::none;
    c.set_activation({"hidden_act"}, Activation::silu);
    c.leave_out_step_limits();
    const LayerPiece attention = c.mixer(c.plain_attention(rotary, c.flag({"attention_bias"}, false)));
    const std::int64_t shared = c.size({"shared_intermediate_size"});
    const std::int64_t experts = c.number_or({"num_local_experts"}, 0);
    const LayerPiece feed_forward = experts == 0 ? c.typed_mlp(shared)
                                                 : c.mixture({.experts = experts,
                                                              .top_k = c.number({"num_experts_per_tok"}),
                                                              .expert_ffn = c.number({"intermediate_size"}),
                                                              .shared_ffn = shared});
    const std::vector<std::string> types = c.mixers_of_layers();
    const std::string ends = experts > 0 ? "+moe" : "+mlp";
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool recurrent = types.empty() || is_recurrent(types[static_cast<std::size_t>(layer)]);
        c.add_layer((recurrent ? "mamba2" : "attention") + ends, {c.norm(2), recurrent ? mamba : attention, feed_forward});
    }
}

void compose_jamba(Composer& c) {
    const std::int64_t inner = c.number_or({"mamba_expand"}, 2) * c.hidden();
    LayerPiece mamba = c.mixer(Mamba{.inner_width = inner,
                                     .state_size = c.size({"mamba_d_state"}),
                                     .conv_taps = c.size({"mamba_d_conv"}),
                                     .dt_rank = step_rank(c, "mamba_dt_rank"),
                                     .conv_bias = c.flag({"mamba_conv_bias"}, true),
                                     .inner_norms = InnerNorms::weighted});
    if (c.flag({"mamba_proj_bias"}, false)) mamba.add_biases({"mixer.in_proj", "mixer.out_proj"});
    c.model().position = PositionEmbedding::none;  // its order is that of the states
    c.set_activation({"hidden_act"}, Activation::silu);
    const LayerPiece attention = c.mixer(c.plain_attention(false));
    const std::int64_t width = c.number({"intermediate_size"}), experts = c.number({"num_experts"});
    const LayerPiece dense = c.typed_mlp(width);
    const Mixture sizes{.experts = experts, .top_k = c.number({"num_experts_per_tok"}), .expert_ffn = width};
    const LayerPiece sparse = experts > 1 ? c.mixture(sizes) : LayerPiece{};
    if (c.model().moe) c.model().moe->normalize_top_k = false;  // modeling_jamba.py, JambaSparseMoeBlock.route_tokens_to_experts
    const std::int64_t attention_every = std::max<std::int64_t>(1, c.number({"attn_layer_period"})),
                       attention_at = c.number({"attn_layer_offset"});
    const std::int64_t experts_every = std::max<std::int64_t>(1, c.number({"expert_layer_period"})),
                       experts_at = c.number({"expert_layer_offset"});
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool full = layer % attention_every == attention_at, mixture = experts > 1 && layer % experts_every == experts_at;
        c.add_layer(std::string(full ? "attention" : "mamba") + (mixture ? "+moe" : "+mlp"),
                    {c.norm(2), full ? attention : mamba, mixture ? sparse : dense});
    }
}

/// One norm and one mixer or feed-forward a layer, by a pattern of letters (M, *, -, E) or by words. Its attention has no biases, whatever
/// attention_bias says.
void compose_nemotron_h(Composer& c) {
    const Mamba2 sizes{.inner_width = c.size({"mamba_num_heads"}) * c.size({"mamba_head_dim"}),
                       .heads = c.size({"mamba_num_heads"}),
                       .groups = c.size({"n_groups"}),
                       .state_size = c.size({"ssm_state_size"}),
                       .conv_taps = c.size({"conv_kernel"})};
    const LayerPiece mamba = c.with_mamba2(sizes, c.flag({"use_conv_bias"}, true), c.flag({"use_bias"}, false));
    // Its activation is squared ReLU unless mlp_hidden_act says otherwise, and positions are in the order of the states alone.
    c.model().position = PositionEmbedding::none;
    c.set_activation({"mlp_hidden_act"}, Activation::squared_relu);
    c.leave_out_step_limits();
    const LayerPiece attention = c.mixer(c.plain_attention(false));
    const bool biased = c.flag({"mlp_bias"}, false);
    const LayerPiece mlp = c.typed_mlp(c.number({"intermediate_size"}), false, biased);
    const auto mixture = [&]() -> LayerPiece {
        const Mixture stated{.experts = c.number({"n_routed_experts"}),
                             .top_k = c.number({"num_experts_per_tok"}),
                             .expert_ffn = c.number({"moe_intermediate_size"}),
                             .gated = false,
                             .latent = c.number_or({"moe_latent_size"}, 0),
                             .shared_ffn = c.number({"moe_shared_expert_intermediate_size"}) * c.number_or({"n_shared_experts"}, 1)};
        if (stated.shared_ffn < 1 && c.config().problems().empty())
            c.config().problem("moe_shared_expert_intermediate_size * n_shared_experts = {} is out of range; give both from 1 on",
                               stated.shared_ffn);
        LayerPiece piece = c.mixture(stated);
        if (!biased) return piece;
        // Typed experts have no biases of shared experts alone.
        LayerPiece counted{
            c.experts({.experts = stated.experts, .top_k = stated.top_k, .width = stated.expert_ffn, .gated = false, .in = stated.latent}),
            c.mlp(stated.shared_ffn, false, true)};
        if (stated.latent > 0) counted.add({c.linear(c.hidden(), stated.latent), c.linear(stated.latent, c.hidden())});
        return counted;
    };
    std::vector<std::string> words = c.config().texts("layers_block_type");
    const std::string pattern = c.config().text_or({"hybrid_override_pattern"}, "");
    if (!pattern.empty()) {
        words.clear();
        for (const char letter : pattern)
            words.emplace_back(letter == 'M'   ? "mamba"
                               : letter == '*' ? "attention"
                               : letter == '-' ? "mlp"
                               : letter == 'E' ? "moe"
                                               : std::string(1, letter));
    }
    const std::string_view field = pattern.empty() ? "layers_block_type" : "hybrid_override_pattern";
    if (c.model().layers != static_cast<std::int64_t>(words.size())) {
        if (!c.config().stated({"num_hidden_layers"}).empty()) {
            c.config().problem("{} has {} entries for {} layers; give one entry per layer", field, words.size(), c.layers());
            return;
        }
        c.model().layers = static_cast<std::int64_t>(words.size());
    }
    for (const std::string& word : words) {
        if (is_recurrent(word))
            c.add_layer("mamba2", {c.norm(), mamba});
        else if (word == "attention" || word == "full_attention")
            c.add_layer("attention", {c.norm(), attention});
        else if (word == "mlp")
            c.add_layer("mlp", {c.norm(), mlp});
        else if (word == "moe")
            c.add_layer("moe", {c.norm(), mixture()});
        else {
            c.config().problem("{} holds '{}'; the layers here are M (mamba), * (attention), - (mlp) and E (moe)", field,
                               word.substr(0, 20));
            return;
        }
    }
}

/// Mamba-2 in every layer; in some of them, by layers_block_type, after an attention and an MLP over states and embeddings joined, whose
/// weights num_mem_blocks of blocks share; each use has an adapter of the MLP's and a map back of its own.
void compose_zamba2(Composer& c) {
    const std::int64_t hidden = c.hidden(), wide = 2 * hidden;
    const std::int64_t heads = c.size({"n_mamba_heads"}), inner = c.number_or({"mamba_expand"}, 2) * hidden;
    const Mamba2 mamba2{.inner_width = inner,
                        .heads = heads,
                        .groups = c.size({"mamba_ngroups"}),
                        .state_size = c.size({"mamba_d_state"}),
                        .conv_taps = c.size({"mamba_d_conv"})};
    const bool conv_bias = c.flag({"use_conv_bias"}, true), biased = c.flag({"add_bias_linear"}, false);
    std::vector<std::string> words = c.words_of_layers("layers_block_type", {"mamba", "linear_attention", "hybrid"});
    if (words.empty()) {
        // Its class has 54 layers (configuration_zamba2.py): six of seven sixths, then two further apart.
        constexpr std::array kHybrid{6, 12, 18, 24, 30, 36, 42, 47, 51};
        constexpr std::int64_t kLayers = 54;
        if (c.layers() != kLayers) {
            c.config().problem(
                "layers_block_type is missing, and the class's own is for {} layers; give one entry per layer, mamba or hybrid", kLayers);
            return;
        }
        words.assign(static_cast<std::size_t>(kLayers), "mamba");
        for (const int layer : kHybrid) words[static_cast<std::size_t>(layer)] = "hybrid";
    }
    const std::int64_t rank = c.number_or({"adapter_rank"}, 128), width = c.number({"intermediate_size"});
    const std::int64_t blocks = c.number_or({"num_mem_blocks"}, 1);
    if (std::count(words.begin(), words.end(), "hybrid") > 1 && !c.flag({"tie_word_embeddings"}, true))
        c.config().problem(
            "tie_word_embeddings = false unties the blocks that layers share as well (transformers, get_expanded_tied_weights_keys), which "
            "is "
            "another network; give true");
    const bool adapts_attention = c.flag({"use_shared_attention_adapter"}, false);
    const std::int64_t head_dim = c.number_or({"attention_head_dim"}, wide / std::max<std::int64_t>(1, c.model().heads));
    const bool turned = c.flag({"use_mem_rope"}, false);
    c.set_activation({"hidden_act"}, Activation::gelu_exact);
    c.model().position = turned ? PositionEmbedding::rope : PositionEmbedding::none;
    c.leave_out_step_limits();
    SharedBlock block{.query_heads = c.model().heads,
                      .kv_heads = c.model().kv_heads,
                      .head_dim = head_dim,
                      .ffn = width,
                      .activation = c.model().activation};
    if (turned) block.rotary.emplace();
    const LayerPiece mamba = c.with_mamba2(mamba2, conv_bias, biased);
    std::int64_t uses = 0;
    for (const std::string& word : words) {
        if (word != "hybrid") {
            c.add_layer("mamba2", {c.norm(), mamba});
            continue;
        }
        block.number = uses++ % std::max<std::int64_t>(1, blocks);
        const SharedBlockMamba2 both{.block = block, .mamba2 = mamba2, .adapter_rank = rank, .adapts_attention = adapts_attention};
        c.add_layer("mamba2 behind a shared block", {c.norm(), c.with_mamba2(both, conv_bias, biased)});
    }
    block.number = 0;  // counted, they all have this name
    LayerPiece weights = c.shared_block(block);
    if (biased) weights.add_biases({"shared_blocks.0.linear_fc1", "shared_blocks.0.linear_fc2"});
    for (std::int64_t i = 0; i < std::min(blocks, uses); ++i) c.add_read_by_layers(weights);
}

/// Qwen3-Next and Qwen3.5: gated delta nets, and attention with a gate of its output every full_attention_interval-th layer.
void compose_delta_hybrid(Composer& c) {
    const LayerPiece delta = c.mixer(c.gated_delta_net());
    c.set_activation({"hidden_act"}, Activation::silu);
    Attention gated = c.plain_attention(true, c.flag({"attention_bias"}, false));
    gated.output_gate = true;
    gated.qk_norm = QkNorm::shared_by_heads;
    const LayerPiece attention = c.mixer(gated);
    const std::int64_t experts = c.number_or({"num_experts"}, 0);
    LayerPiece sparse;
    if (experts > 0)
        sparse = c.mixture({.experts = experts,
                            .top_k = c.number({"num_experts_per_tok"}),
                            .expert_ffn = c.number({"moe_intermediate_size"}),
                            .shared_ffn = c.size({"shared_expert_intermediate_size"}),
                            .shared_gate = true});
    const std::int64_t step = std::max<std::int64_t>(1, c.number_or({"decoder_sparse_step"}, 1));
    const std::int64_t every = std::max<std::int64_t>(1, c.number_or({"full_attention_interval"}, 4));
    std::set<std::int64_t> dense_only;
    for (const auto layer : c.config().integers("mlp_only_layers", 0, ModelLimits::layers)) dense_only.insert(layer);
    const std::vector<std::string> types = c.mixers_of_layers();
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool full = types.empty() ? (layer + 1) % every == 0 : !is_recurrent(types[static_cast<std::size_t>(layer)]);
        const bool mixture = experts > 0 && (layer + 1) % step == 0 && !dense_only.contains(layer);
        c.add_layer(std::string(full ? "attention" : "gated_delta_net") + (mixture ? "+moe" : "+mlp"),
                    {c.norm(2), full ? attention : delta, mixture ? sparse : c.typed_mlp(c.number({"intermediate_size"}))});
    }
}

/// Delta nets with projections of their own, norms in front of them; attention with norms after it and over all heads of q and k.
void compose_olmo_hybrid(Composer& c) {
    const auto* const rope = c.config().object("rope_parameters");
    const bool turns = rope != nullptr && rope->contains("rope_theta") && !rope->at("rope_theta").is_null();
    if (!turns) c.model().position = PositionEmbedding::none;
    Attention sizes = c.plain_attention(turns, c.flag({"attention_bias"}, false));
    sizes.qk_norm = QkNorm::full_width;
    c.set_activation({"hidden_act"}, Activation::silu);
    c.model().state_norm_epsilon = 1e-5;  // modeling_olmo_hybrid.py, OlmoHybridGatedDeltaNet: no field of the config
    GatedDeltaNet delta = c.gated_delta_net();
    if (c.flag({"linear_allow_neg_eigval"}, true)) delta.strength = 2;
    const LayerPiece mlp = c.typed_mlp(c.number({"intermediate_size"}));
    const std::vector<std::string> types = c.mixers_of_layers();
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool full = types.empty() ? layer % 4 == 3 : !is_recurrent(types[static_cast<std::size_t>(layer)]);
        if (full)
            c.add_layer("attention+mlp", {c.norm(2, false, true), c.mixer(sizes), mlp});
        else
            c.add_layer("gated_delta_net+mlp", {c.norm(2), c.mixer(delta), mlp});
    }
}

void compose_recurrent_gemma(Composer& c) {
    const std::int64_t width = c.number_or({"lru_width"}, c.hidden());
    const LayerPiece recurrent =
        c.mixer(GatedLinearRecurrence{.width = width, .heads = c.model().heads, .conv_taps = c.size({"conv1d_width"})});
    Attention sizes = c.plain_attention(true, true);
    sizes.qkv_bias = c.flag({"attention_bias"}, false);
    const LayerPiece attention = c.mixer(sizes);
    c.set_activation({"hidden_activation"}, Activation::gelu);
    c.model().sliding_window = c.config().integer_or({"attention_window_size"}, 2048, 1, ModelLimits::positions);
    c.model().logit_softcap = c.config().real_or({"logits_soft_cap"}, 0, 0, ModelLimits::multiplier);
    if (c.flag({"embeddings_scale_by_sqrt_dim"}, true)) c.model().embedding_multiplier = std::sqrt(static_cast<double>(c.hidden()));
    // intermediate_size counts both matrices of the gate.
    const LayerPiece mlp = c.typed_mlp(c.number({"intermediate_size"}) / 2, true, true);
    std::vector<std::string> blocks = c.config().texts("block_types");
    if (!c.knows_words("block_types", blocks, {"recurrent", "attention"})) return;
    if (blocks.empty()) blocks = {"recurrent", "recurrent", "attention"};
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool full = !is_recurrent(blocks[static_cast<std::size_t>(layer) % blocks.size()]);
        c.add_layer(full ? "attention+mlp" : "gated_linear_recurrence+mlp", {c.norm(2), full ? attention : recurrent, mlp});
    }
}

}  // namespace mgplan::formats
