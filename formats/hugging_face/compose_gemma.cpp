// Gemma 3n and 4 (configuration_*.py and modeling_*.py of gemma3n and gemma4).

#include <algorithm>
#include <cmath>

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
                    {c.norm(2, true, true), c.mixer(whole, full[i] ? 0 : window)});
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
    return {c.norm(4, true, true), c.mixer(attention, window), gemma4_feed_forward(c, one.width, experts)};
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
