// Layers whose mixer is a gated short convolution: LFM2 (configuration_lfm2.py, modeling_lfm2.py, and the same of lfm2_moe).

#include <algorithm>
#include <cmath>
#include <set>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

/// Width of the MLPs of lfm2 (Lfm2MLP): block_ff_dim takes precedence over intermediate_size (Lfm2Config), and unless the file says
/// otherwise two thirds of it count, times a factor, rounded up.
std::int64_t adjusted_width(Composer& c) {
    const std::int64_t stated = c.number({"block_ff_dim", "intermediate_size"});
    if (!c.flag({"block_auto_adjust_ff_dim"}, true)) return stated;
    constexpr double kMostTimes = 1e3;
    const double times = c.config().real_or({"block_ffn_dim_multiplier"}, 1, 0, kMostTimes);
    const std::int64_t two_thirds = 2 * stated / 3;
    const auto width = static_cast<std::int64_t>(std::trunc(times * static_cast<double>(two_thirds)));
    const std::int64_t unit = std::max<std::int64_t>(1, c.number_or({"block_multiple_of"}, 256));
    return (width + unit - 1) / unit * unit;
}

/// True for each layer with attention, false for convolutions: layer_types, else full_attn_idxs, else all.
std::vector<bool> attending_layers(Composer& c) {
    std::vector<bool> attends(static_cast<std::size_t>(c.layers()), true);
    const std::vector<std::string> types = c.words_of_layers("layer_types");
    for (std::size_t layer = 0; layer < types.size(); ++layer) {
        attends[layer] = types[layer] == "full_attention";
        if (!attends[layer] && types[layer] != "conv") {
            c.config().problem("layer_types holds '{}', which no layer of this type is; write full_attention or conv",
                               types[layer].substr(0, 20));
            break;
        }
    }
    const bool listed = c.config().list("full_attn_idxs") != nullptr;
    std::set<std::int64_t> full;
    for (const auto layer : c.config().integers("full_attn_idxs", 0, ModelLimits::layers)) full.insert(layer);
    if (!types.empty() || !listed) return attends;
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) attends[static_cast<std::size_t>(layer)] = full.contains(layer);
    return attends;
}

}  // namespace

/// Norms of each head of queries and keys in front of rotary positions; SiLU, which no field states. num_dense_layers layers of lfm2_moe
/// have an MLP of intermediate_size as it is, later ones experts chosen by sigmoids, with a bias unless use_expert_bias says no.
void compose_lfm2(Composer& c) {
    const LayerPiece conv = c.short_convolution();
    Attention sizes = c.plain_attention(true);
    sizes.qk_norm = QkNorm::shared_by_heads;
    const LayerPiece attention = c.mixer(sizes);
    c.model().activation = Activation::silu;
    const std::int64_t experts = c.number_or({"num_experts"}, 0);
    const LayerPiece dense = c.typed_mlp(experts > 0 ? c.number({"intermediate_size"}) : adjusted_width(c));
    LayerPiece sparse;
    if (experts > 0) {
        sparse =
            c.mixture({.experts = experts, .top_k = c.number({"num_experts_per_tok"}), .expert_ffn = c.number({"moe_intermediate_size"})});
        const bool biased = c.flag({"use_expert_bias"}, true);
        if (c.model().moe) c.model().moe->expert_bias = biased;
    }
    const std::int64_t first_sparse = experts > 0 ? c.number_or({"num_dense_layers"}, 2) : c.layers();
    const std::vector<bool> attends = attending_layers(c);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const bool full = attends[static_cast<std::size_t>(layer)], mixture = layer >= first_sparse;
        c.add_layer(std::string(full ? "attention" : "short_convolution") + (mixture ? "+moe" : "+mlp"),
                    {c.norm(2), full ? attention : conv, mixture ? sparse : dense});
    }
}

/// LFM 3 (modeling_lfm3.py): norms after both halves as well, and a gate of each head's output, where their fields say so; layer_types, or
/// of each four layers one that sees all and, but for the first, one with a window.
void compose_lfm3(Composer& c) {
    const bool biased = c.flag({"attention_bias"}, false), gated = c.flag({"use_attention_gate"}, true);
    const LayerPiece norms = c.norm(c.flag({"use_sandwich_norm"}, true) ? 4 : 2), mlp = c.mlp(c.number({"intermediate_size"}));
    const LayerPiece conv = c.short_convolution();
    LayerPiece attention{norms, c.attention({.qk_norm = QkNorm::shared_by_heads, .qkv_bias = biased, .output_bias = biased})};
    if (gated) attention.add(c.linear(c.hidden(), c.model().heads));
    std::vector<std::string> types = c.words_of_layers("layer_types");
    const bool listed = !types.empty() || !c.config().problems().empty();
    for (std::int64_t layer = 0; !listed && layer < c.layers(); ++layer)
        types.emplace_back(layer % 4 == 2 ? "full_attention" : layer % 4 == 0 && layer > 0 ? "sliding_attention" : "conv");
    for (const std::string& type : types) {
        if (type == "conv")
            c.add_layer("short_convolution+mlp", {norms, conv, mlp});
        else if (type == "full_attention" || type == "sliding_attention")
            c.add_layer(type == "full_attention" ? "attention+mlp" : "window attention+mlp", {attention, {mlp}});
        else
            c.config().problem("layer_types holds '{}', which no layer of this type is; write full_attention, sliding_attention or conv",
                               type.substr(0, 20));
    }
}

/// tie_embedding takes precedence over tie_word_embeddings (__post_init__ of both classes).
void arrange_lfm2(ConfigParts& parts) {
    parts.model.tied_embeddings = parts.config.boolean_or({"tie_embedding"}, parts.model.tied_embeddings);
}

}  // namespace mgplan::formats
