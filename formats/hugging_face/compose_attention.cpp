// Layers of attention and an MLP whose norms, biases or sizes no field of ModelSpec describes.

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/core.h>

#include "formats/hugging_face/composer.hpp"

namespace mgplan::formats {
namespace {

/// intermediate_size as one number, or as a list with one for each layer.
std::vector<std::int64_t> widths_of_layers(Composer& c) {
    const auto* stated = c.config().member("intermediate_size", {JsonKind::number, JsonKind::list});
    if (stated == nullptr || !stated->is_array())
        return std::vector<std::int64_t>(static_cast<std::size_t>(c.layers()), c.number({"intermediate_size"}));
    std::vector<std::int64_t> widths = c.config().integers("intermediate_size", 1, ModelLimits::ffn);
    if (static_cast<std::int64_t>(widths.size()) == c.layers()) return widths;
    c.config().problem("intermediate_size has {} entries for {} layers; give one number, or one entry per layer", widths.size(),
                       c.layers());
    return {};
}

void add_equal_layers(Composer& c, const LayerPiece& layer_of_all) {
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) c.add_layer("attention+mlp", layer_of_all);
}

void final_norm_has_bias(Composer& c) {
    c.model().normalization = Normalization::layer_norm;
}

}  // namespace

/// GPT-2 but for biases of q, k and v, which it has none of.
void compose_gpt_neo(Composer& c) {
    final_norm_has_bias(c);
    c.model().position = PositionEmbedding::learned;
    add_equal_layers(
        c, {c.layer_norm(2), c.attention({.output_bias = true}), c.mlp(c.number_or({"intermediate_size"}, 4 * c.hidden()), false, true)});
}

/// Norms without weights, the final one included.
void compose_nanochat(Composer& c) {
    c.without_final_norm();
    const bool biased = c.flag({"attention_bias"}, false);
    add_equal_layers(c, {c.attention({.qkv_bias = biased, .output_bias = biased}), c.mlp(c.number({"intermediate_size"}), false)});
    c.leave_out("norms without weights");
}

void compose_persimmon(Composer& c) {
    final_norm_has_bias(c);
    const bool normed = c.flag({"qk_layernorm"}, true);
    add_equal_layers(
        c,
        {c.layer_norm(2),
         c.attention(
             {.qk_norm = normed ? QkNorm::shared_by_heads : QkNorm::none, .qk_norm_bias = normed, .qkv_bias = true, .output_bias = true}),
         c.mlp(c.number({"intermediate_size"}), false, true)});
}

/// A norm in front of the output projection, and one in front of the MLP's second matrix.
void compose_bitnet(Composer& c) {
    const std::int64_t width = c.number({"intermediate_size"});
    const bool biased = c.flag({"attention_bias"}, false);
    add_equal_layers(c, {c.norm(3), c.attention({.qkv_bias = biased, .output_bias = biased}), c.mlp(width), c.norm_over(width)});
}

/// Two softmaxes, one subtracted from the other, with four vectors that weigh it.
void compose_diffllama(Composer& c) {
    const bool biased = c.flag({"attention_bias"}, false);
    add_equal_layers(c, {c.norm(2), c.attention({.qkv_bias = biased, .output_bias = biased}), c.values(4 * c.model().head_dim),
                         c.mlp(c.number({"intermediate_size"}))});
}

void compose_xglm(Composer& c) {
    final_norm_has_bias(c);
    add_equal_layers(c, {c.layer_norm(2), c.attention({.qkv_bias = true, .output_bias = true}), c.mlp(c.number({"ffn_dim"}), false, true)});
}

/// A mask that follows from the values, trained factors of both residual paths, and, with is_moe, experts of one row each besides the MLP.
void compose_doge(Composer& c) {
    const bool biased = c.flag({"attention_bias"}, false);
    const std::int64_t groups = c.model().kv_heads;
    LayerPiece pieces{c.norm(2),
                      c.attention({.qk_norm = QkNorm::shared_by_heads, .qkv_bias = biased, .output_bias = biased}),
                      c.linear(groups * c.model().head_dim, groups, biased),
                      c.values(groups),  // the mask
                      c.mlp(c.number({"intermediate_size"}), true, c.flag({"mlp_bias"}, false)),
                      c.values(2 * c.hidden())};
    (void)c.number_or({"keep_window_size"}, 0);
    const std::int64_t experts = c.number_or({"num_experts"}, 1), top_k = c.number_or({"num_experts_per_tok"}, 1);
    const bool mixture = c.flag({"is_moe"}, false);
    if (mixture) {
        // Each expert is the pair of two of sqrt(experts) keys, which the router scores.
        const auto keys = static_cast<std::int64_t>(std::floor(std::sqrt(static_cast<double>(experts))));
        pieces.add(c.experts({.experts = experts, .top_k = top_k, .width = 1, .gated = false, .router = false}));
        pieces.add(c.linear(c.hidden(), 2 * keys));
    }
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) c.add_layer(mixture ? "attention+mlp and moe" : "attention+mlp", pieces);
}

/// GPT-1: norms after attention and MLP, none after the last layer.
void compose_openai_gpt(Composer& c) {
    final_norm_has_bias(c);
    c.without_final_norm();
    c.model().position = PositionEmbedding::learned;
    add_equal_layers(c, {c.layer_norm(2), c.attention({.qkv_bias = true, .output_bias = true}), c.mlp(4 * c.hidden(), false, true)});
}

/// Llama 3.2 Vision: some layers attend to the picture alone, with norms of each head and a trained gate in front of both additions; eight
/// rows of words on top of the vocabulary.
void compose_mllama(Composer& c) {
    std::vector<std::int64_t> listed = c.config().integers("cross_attention_layers", 0, ModelLimits::layers);
    if (c.config().list("cross_attention_layers") == nullptr) listed = {3, 8, 13, 18, 23, 28, 33, 38};  // of its class
    const std::set<std::int64_t> crossing(listed.begin(), listed.end());
    const LayerPiece mlp = c.mlp(c.number({"intermediate_size"}));
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        if (crossing.contains(layer))
            c.add_layer("attention to pictures+mlp", {c.norm(2), c.attention({.qk_norm = QkNorm::shared_by_heads}), mlp, c.values(2)});
        else
            c.add_layer("attention+mlp", {c.norm(2), c.attention(), mlp});
    }
    constexpr std::int64_t kMoreWords = 8;
    c.add_beside(c.table(kMoreWords, c.hidden()));
}

/// A llama, but for a scale of the MLP's input that the delay of its transcription decides, through 32 values.
void compose_voxtral_realtime(Composer& c) {
    constexpr std::int64_t kDelayWidth = 32;  // modeling_voxtral_realtime.py, VoxtralRealtimeTextAdaRmsNorm
    add_equal_layers(c, {c.norm(2), c.attention(), c.linear(c.hidden(), kDelayWidth), c.linear(kDelayWidth, c.hidden()),
                         c.mlp(c.number({"intermediate_size"}))});
}

namespace {

/// activation_sparsity_pattern: the share of zeros to which each layer's gate is cut, in whole millionths; not stated, 0.95 in the first
/// ten of more than ten layers.
std::vector<double> gate_cuts(Composer& c) {
    constexpr std::int64_t kSparseLayers = 10;
    constexpr double kUsual = 0.95;
    std::vector<double> cuts(static_cast<std::size_t>(c.layers()), 0);
    const auto* const stated = c.config().list("activation_sparsity_pattern");
    if (stated == nullptr) {
        if (c.layers() > kSparseLayers) std::fill_n(cuts.begin(), kSparseLayers, kUsual);
        return cuts;
    }
    if (static_cast<std::int64_t>(stated->size()) != c.layers()) {
        c.config().problem("activation_sparsity_pattern has {} entries for {} layers; give one entry per layer", stated->size(),
                           c.layers());
        return cuts;
    }
    for (std::size_t i = 0; i < cuts.size(); ++i) {
        const double share = (*stated)[i].is_number() ? (*stated)[i].get<double>() : -1;
        if (!(share >= 0 && share < 1)) {
            c.config().problem("activation_sparsity_pattern holds something that is no share of zeros; give numbers from 0 to below 1");
            break;
        }
        cuts[i] = std::round(share * 1e6) / 1e6;
    }
    return cuts;
}

/// True for each layer that sees all: layer_types, else every fifth. Keys that the last layers take over come from layers of both kinds
/// that they are of (configuration_gemma3n.py, kv_sharing_modes).
std::vector<bool> full_layers_of_gemma3n(Composer& c, std::int64_t shared) {
    std::vector<bool> full;
    for (const std::string& word : c.words_of_layers("layer_types", {"full_attention", "sliding_attention"}))
        full.push_back(word == "full_attention");
    for (std::int64_t layer = static_cast<std::int64_t>(full.size()); layer < c.layers(); ++layer) full.push_back((layer + 1) % 5 == 0);
    const auto own = full.begin() + std::max<std::int64_t>(0, c.layers() - shared);
    for (auto layer = own; shared > 0 && layer != full.end(); ++layer) {
        if (std::find(full.begin(), own, *layer) != own) continue;
        c.config().problem(
            "num_kv_shared_layers = {}, but no layer in front of these is of the kind ({}) whose keys one of them takes over; give fewer",
            shared, *layer ? "full_attention" : "sliding_attention");
        break;
    }
    return full;
}

}  // namespace

bool is_unlike_other_opt(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    return config.integer_or({"word_embed_proj_dim"}, parts.model.hidden, 1, ModelLimits::hidden) != parts.model.hidden ||
           !config.boolean_or({"do_layer_norm_before"}, true) || config.boolean_or({"_remove_final_layer_norm"}, false);
}

/// modeling_opt.py: a map from words to layers and one back, norms after the residual additions (x + f(x) is normed, not f(x)), no norm
/// after the last layer.
void compose_opt(Composer& c) {
    final_norm_has_bias(c);
    const std::int64_t words = c.number_or({"word_embed_proj_dim"}, c.hidden());
    if (words != c.hidden()) c.model().word_width = words;
    const bool in_front = c.flag({"do_layer_norm_before"}, true), removed = c.flag({"_remove_final_layer_norm"}, false);
    if (!in_front || removed) c.without_final_norm();
    const bool biased = c.flag({"enable_bias"}, true);
    c.model().ffn = std::clamp<std::int64_t>(c.number({"ffn_dim"}), 1, ModelLimits::ffn);
    add_equal_layers(c, {c.layer_norm(2), c.attention({.qkv_bias = biased, .output_bias = biased}), c.mlp(c.model().ffn, false, biased)});
}

/// Several streams (AltUp), a low-rank bypass (LAuReL), inputs of each layer from a table of their own, keys and values of the last
/// layers taken over from earlier ones, gates cut to their largest values.
void compose_gemma3n(Composer& c) {
    const std::int64_t streams = c.size({"altup_num_inputs"}), own = c.size({"hidden_size_per_layer_input"}),
                       words = c.size({"vocab_size_per_layer_input"}), rank = c.size({"laurel_rank"});
    const std::int64_t shared = c.number_or({"num_kv_shared_layers"}, 0), window = c.number_or({"sliding_window"}, 512);
    const std::vector<std::int64_t> widths = widths_of_layers(c);
    const std::vector<double> cuts = gate_cuts(c);
    const std::vector<bool> full = full_layers_of_gemma3n(c, shared);
    if (widths.empty() || !c.config().problems().empty()) return;
    if (!c.flag({"altup_correct_scale"}, true))
        c.assume("altup_correct_scale is false: its class has scales of the first stream all the same, which no token uses");
    c.set_activation({"hidden_activation"}, Activation::gelu);
    c.model().embedding_multiplier = std::sqrt(static_cast<double>(c.hidden()));
    c.model().logit_softcap = c.config().real_or({"final_logit_softcapping"}, 0, 0, ModelLimits::multiplier);
    const bool biased = c.flag({"attention_bias"}, false);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const auto i = static_cast<std::size_t>(layer);
        const bool takes_over = layer >= c.layers() - shared;
        const Gemma3nLayer whole{.attention = {.heads = c.model().heads,
                                               .kv_heads = c.model().kv_heads,
                                               .head_dim = c.model().head_dim,
                                               .shares_kv = takes_over,
                                               .bias = biased,
                                               .layer_input_width = own,
                                               .layer_input_rows = words,
                                               .bypass_rank = rank},
                                 .mlp = {.width = widths[i], .activation = c.model().activation},
                                 .mlp_zero_share = cuts[i],
                                 .streams = streams};
        c.add_layer(std::string(full[i] ? "attention" : "window attention") + (takes_over ? " with other layers' keys" : "") +
                        (cuts[i] > 0 ? "+cut mlp" : "+mlp"),
                    {c.norms_around(2), c.mixer(whole, full[i] ? 0 : window)});
    }
    if (streams > 1) {
        LayerPiece ends;  // a matrix at either end for each stream but the first
        ends.tensors.push_back({"streams.weight", {c.hidden(), c.hidden()}, 2 * (streams - 1), 2 * (streams - 1)});
        c.add_read_by_layers(ends);
    }
    c.add_read_by_layers(c.norm_over(own));
}

namespace {

/// Differences between layers of Gemma 4.
struct Gemma4Layer {
    bool full = false, takes_over = false;  ///< sees all; keys and values are another layer's
    std::int64_t head_dim = 0, groups = 0, width = 0;
};

/// Other heads in layers that see all (global_head_dim, or per_layer_config).
Gemma4Layer gemma4_layer(Composer& c, std::int64_t layer, const std::vector<std::string>& types) {
    const std::int64_t shared = c.number_or({"num_kv_shared_layers"}, 0), width = c.number({"intermediate_size"});
    const std::int64_t head_dim = c.model().head_dim, kv_heads = c.model().kv_heads;
    const std::int64_t wide = c.number_or({"global_head_dim"}, 512), wide_groups = c.number_or({"num_global_key_value_heads"}, kv_heads);
    const bool same = c.flag({"attention_k_eq_v"}, false), double_wide = c.flag({"use_double_wide_mlp"}, false);
    const bool full =
        types.empty() ? (layer + 1) % 6 == 0 || layer == c.layers() - 1 : types[static_cast<std::size_t>(layer)] == "full_attention";
    Gemma4Layer one{full, shared > 0 && layer >= c.layers() - shared, full ? wide : head_dim, full && same ? wide_groups : kv_heads, width};
    if (c.config().object("per_layer_config") != nullptr) {
        one.head_dim = head_dim;
        one.groups = kv_heads;
        if (const auto* const fields = c.config_of_layer(layer); fields != nullptr) {
            JsonReader reader(*fields, fmt::format("{}: per_layer_config: {}", c.config().where(), layer), c.config().problems());
            one.head_dim = reader.integer_or("head_dim", head_dim, 1, ModelLimits::head_dim);
            one.groups = reader.integer_or("num_key_value_heads", kv_heads, 1, ModelLimits::heads);
            one.width = reader.integer_or("intermediate_size", width, 1, ModelLimits::ffn);
        }
    }
    if (double_wide && one.takes_over && one.width == width) one.width *= 2;
    return one;
}

/// The MLP of a layer and, with experts, these in parallel (Gemma4TextDecoderLayer): the MLP as a shared expert, after the layer's norm;
/// the router and the experts each after a norm of their own, and norms after both.
LayerPiece gemma4_feed_forward(Composer& c, std::int64_t width, std::int64_t experts) {
    if (experts == 0) return c.typed_mlp(width);
    return c.mixture({.experts = experts,
                      .top_k = c.number({"top_k_experts"}),
                      .expert_ffn = c.number({"moe_intermediate_size"}),
                      .shared_ffn = width,
                      .branch_norms = true});
}

/// A layer of Gemma 4; `input`: width of its inputs, 0 none.
LayerPiece gemma4_pieces(Composer& c, const Gemma4Layer& one, bool same, std::int64_t input, std::int64_t experts) {
    GemmaAttention attention{.heads = c.model().heads,
                             .kv_heads = one.groups,
                             .head_dim = one.head_dim,
                             .shares_kv = one.takes_over,
                             .key_is_value = one.full && same,
                             .bias = c.flag({"attention_bias"}, false)};
    const std::int64_t window = one.full ? 0 : c.number_or({"sliding_window"}, 512);
    if (input > 0) {
        attention.layer_input_width = input;
        attention.layer_input_rows = c.number({"vocab_size_per_layer_input"});
    }
    return {c.norms_around(4), c.mixer(attention, window), gemma4_feed_forward(c, one.width, experts)};
}

}  // namespace

/// Inputs of each layer from a table of their own; an MLP in parallel with experts; MLPs of several widths are counted alone.
void compose_gemma4(Composer& c) {
    const std::int64_t own = c.number_or({"hidden_size_per_layer_input"}, 0);
    std::vector<std::string> types = c.words_of_layers("layer_types", {"full_attention", "sliding_attention"});
    if (!types.empty()) types.back() = "full_attention";  // whatever a file states (configuration_gemma4.py)
    const std::int64_t experts = c.flag({"enable_moe_block"}, false) ? c.number_or({"num_experts"}, 0) : 0;
    const bool same = c.flag({"attention_k_eq_v"}, false);
    c.set_activation({"hidden_activation"}, Activation::gelu);
    c.model().embedding_multiplier = std::sqrt(static_cast<double>(c.hidden()));
    c.model().logit_softcap = c.config().real_or({"final_logit_softcapping"}, 0, 0, ModelLimits::multiplier);
    for (std::int64_t layer = 0; layer < c.layers(); ++layer) {
        const Gemma4Layer one = gemma4_layer(c, layer, types);
        const std::string name =
            std::string(one.full ? "attention" : "window attention") + (one.takes_over ? " with other layers' keys" : "");
        c.add_layer(name + (experts > 0 ? "+mlp and moe" : "+mlp"), gemma4_pieces(c, one, same, own, experts));
    }
    if (own > 0) c.add_read_by_layers(c.norm_over(own));
}

}  // namespace mgplan::formats
