// Kimi Linear (configuration_kimi_linear.py, modeling_kimi_linear.py): Kimi delta attention, and latent attention without rotary positions
// in between.

#include <algorithm>
#include <optional>
#include <set>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

/// Layers with latent attention: layer_types, else linear_attn_config, which counts them from 1, else every fourth but the first.
std::vector<bool> latent_layers(Composer& c, const std::optional<std::set<std::int64_t>>& listed) {
    std::vector<bool> latent;
    for (const std::string& word : c.mixers_of_layers()) latent.push_back(!is_recurrent(word));
    if (!latent.empty()) return latent;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer)
        latent.push_back(listed ? listed->contains(layer + 1) : layer > 0 && layer % 4 == 0);
    return latent;
}

}  // namespace

void compose_kimi_linear(Composer& c) {
    std::int64_t heads = c.number_or({"linear_num_heads"}, 32), head_dim = c.number_or({"linear_head_dim"}, 128),
                 conv = c.number_or({"linear_conv_kernel_dim"}, 4);
    std::optional<std::set<std::int64_t>> listed;
    if (const auto* nested = c.config().object("linear_attn_config"); nested != nullptr) {
        JsonReader reader(*nested, c.config().where() + ": linear_attn_config", c.config().problems());
        heads = reader.integer_or("num_heads", heads, 1, ModelLimits::heads);
        head_dim = reader.integer_or("head_dim", head_dim, 1, ModelLimits::head_dim);
        conv = reader.integer_or("short_conv_kernel_size", conv, 1, ModelLimits::head_dim);
        if (reader.has("full_attn_layers")) listed.emplace();
        for (const auto layer : reader.integers("full_attn_layers", 1, ModelLimits::layers)) listed->insert(layer);
    }
    const LayerPiece linear = c.mixer(KimiDeltaAttention{.heads = heads, .head_dim = head_dim, .conv_taps = conv});
    const LayerPiece latent = c.latent_attention();
    c.model().position = PositionEmbedding::none;  // its order is that of the states
    c.model().kv_heads = c.model().heads;
    c.set_activation({"hidden_act"}, Activation::silu);
    const LayerPiece dense = c.typed_mlp(c.number({"intermediate_size"}));
    const std::int64_t width = c.number({"moe_intermediate_size"});
    const LayerPiece sparse = c.mixture({.experts = c.number({"num_experts", "n_routed_experts", "num_local_experts"}),
                                         .top_k = c.number({"num_experts_per_token", "num_experts_per_tok"}),
                                         .expert_ffn = width,
                                         .shared_ffn = width * c.number_or({"num_shared_experts", "n_shared_experts"}, 1)});
    const std::vector<bool> latents = latent_layers(c, listed), mixtures = c.sparse_layers(c.number_or({"first_k_dense_replace"}, 1));
    if (!c.config().problems().empty()) return;
    constexpr double kLatentEpsilon = 1e-6;  // of the norms of the latents: the default of their class (KimiLinearRMSNorm)
    c.model().mla = MlaSpec{.q_lora_rank = c.number_or({"q_lora_rank"}, 0),
                            .kv_lora_rank = c.size({"kv_lora_rank"}),
                            .qk_nope_head_dim = c.number({"qk_nope_head_dim"}),
                            .qk_rope_head_dim = c.number({"qk_rope_head_dim"}),
                            .v_head_dim = c.number({"v_head_dim"}),
                            .norm_epsilon = kLatentEpsilon};
    const std::int64_t frequency = std::max<std::int64_t>(1, c.number_or({"moe_layer_freq"}, 1));
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        const bool mixture = mixtures[at] && layer % frequency == 0;
        c.add_layer(std::string(latents[at] ? "latent_attention" : "kimi_delta_attention") + (mixture ? "+moe" : "+mlp"),
                    LayerPiece{{c.norm(2), latents[at] ? latent : linear}, mixture ? sparse : LayerPiece{dense}});
    }
}

}  // namespace mgplan::formats
