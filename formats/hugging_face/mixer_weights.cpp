// Mixers with a state in checkpoints: a function for each kind whose tensors have other names or another order there than here.

#include <utility>

#include "formats/hugging_face/layer_weights.hpp"

namespace mgplan::formats {
namespace {

/// Mamba, Mamba-2, short convolutions, linear recurrences: named as here, within another module.
void place_state_space(const LayerWeights& at, PublishedParameter& entry, const std::string& module, std::string_view what) {
    if (what == "conv1d_weight") return at.pieces.is(entry, module + "conv1d.weight", {entry.rows, 1, entry.columns});
    if (what == "conv.weight") return at.pieces.is(entry, module + "conv.weight", {entry.rows, 1, entry.columns});  // LFM2
    if (what == "conv1d_bias") return at.pieces.is(entry, module + "conv1d.bias");
    at.pieces.is(entry, module + std::string(what));
}

/// Projections and convolutions of OLMo hybrid, which its class joins.
void place_delta_apart(const GatedDeltaNet& net, const LayerWeights& at, PublishedParameter& entry, const std::string& module,
                       std::string_view what) {
    if (what == "out_norm.weight") return at.pieces.is(entry, module + "o_norm.weight");
    if (what == "out_proj.weight") return at.pieces.is(entry, module + "o_proj.weight");
    const std::int64_t heads = net.value_heads, keys = net.key_heads * net.key_dim, values = heads * net.value_dim;
    using Rows = std::pair<std::string_view, std::int64_t>;
    if (what == "conv1d.weight") {
        for (const auto& [name, rows] : {Rows{"q_conv1d.weight", keys}, Rows{"k_conv1d.weight", keys}, Rows{"v_conv1d.weight", values}})
            at.pieces.append(entry, {at.pieces.tensor(module + std::string(name), {rows, 1, entry.columns}), 0, entry.columns, 1, 0, rows});
        return;
    }
    if (what != "in_proj.weight") return at.pieces.is(entry, module + std::string(what));
    for (const auto& [name, rows] : {Rows{"q_proj", keys}, Rows{"k_proj", keys}, Rows{"v_proj", values}, Rows{"g_proj", values},
                                     Rows{"b_proj", heads}, Rows{"a_proj", heads}})
        at.pieces.append_rows(entry, at.pieces.linear(module + std::string(name), rows, entry.columns, false), 0, rows);
}

void place(const GatedDeltaNet& net, const LayerWeights& at, PublishedParameter& entry, const std::string& module, std::string_view what) {
    if (at.names.delta_rows == DeltaRows::apart) return place_delta_apart(net, at, entry, module, what);
    if (what == "conv1d.weight") return at.pieces.is(entry, module + "conv1d.weight", {entry.rows, 1, entry.columns});
    if (what == "out_norm.weight") return at.pieces.is(entry, module + "norm.weight");
    if (what != "in_proj.weight") return at.pieces.is(entry, module + std::string(what));
    const std::int64_t key_heads = net.key_heads, heads = net.value_heads, each = heads / key_heads;
    const std::int64_t key = net.key_dim, value = net.value_dim, columns = entry.columns;
    const std::int64_t keys = key_heads * key, values = heads * value;
    if (at.names.delta_rows == DeltaRows::by_part) {
        at.pieces.append_rows(entry, at.pieces.linear(module + "in_proj_qkv", 2 * keys + values, columns, false), 0, 2 * keys + values);
        at.pieces.append_rows(entry, at.pieces.linear(module + "in_proj_z", values, columns, false), 0, values);
        for (const auto* one : {"in_proj_b", "in_proj_a"})
            at.pieces.append_rows(entry, at.pieces.linear(module + one, heads, columns, false), 0, heads);
        return;
    }
    const std::int64_t of_head = 2 * key + 2 * each * value;
    const WeightPieces::Linear wide = at.pieces.linear(module + "in_proj_qkvz", key_heads * of_head, columns, false);
    const WeightPieces::Linear narrow = at.pieces.linear(module + "in_proj_ba", 2 * heads, columns, false);
    using Rows = std::pair<std::int64_t, std::int64_t>;
    for (const auto& [first, rows] :
         {Rows{0, key}, Rows{key, key}, Rows{2 * key, each * value}, Rows{2 * key + each * value, each * value}}) {
        for (std::int64_t head = 0; head < key_heads; ++head) at.pieces.append_rows(entry, wide, head * of_head + first, rows);
    }
    for (const std::int64_t first : {std::int64_t{0}, each}) {
        for (std::int64_t head = 0; head < key_heads; ++head) at.pieces.append_rows(entry, narrow, head * 2 * each + first, each);
    }
}

void place(const KimiDeltaAttention& attention, const LayerWeights& at, PublishedParameter& entry, const std::string& module,
           std::string_view what) {
    const std::int64_t heads = attention.heads, width = heads * attention.head_dim;
    if (what == "A_log") return at.pieces.is(entry, module + "A_log", {1, 1, heads, 1});
    if (what == "in_proj.weight") {
        for (const auto* one : {"q_proj", "k_proj", "v_proj"})
            at.pieces.append_rows(entry, at.pieces.linear(module + one, width, entry.columns, false), 0, width);
        return at.pieces.append_rows(entry, at.pieces.linear(module + "b_proj", heads, entry.columns, false), 0, heads);
    }
    if (what == "conv1d.weight") {
        for (const auto* one : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"})
            at.pieces.append(entry, {at.pieces.tensor(module + one, {width, 1, entry.columns}), 0, entry.columns, 1, 0, width});
        return;
    }
    using Name = std::pair<std::string_view, std::string_view>;
    for (const auto& [own, published] : {Name{"decay_down.weight", "f_a_proj.weight"},
                                         {"decay_up.weight", "f_b_proj.weight"},
                                         {"gate_down.weight", "g_a_proj.weight"},
                                         {"gate_up.weight", "g_b_proj.weight"},
                                         {"out_norm.weight", "o_norm.weight"},
                                         {"out_proj.weight", "o_proj.weight"}}) {
        if (what == own) return at.pieces.is(entry, module + std::string(published));
    }
    at.pieces.is(entry, module + std::string(what));
}

/// Published rows hold q, k and v head by head.
void place(const LightningAttention& attention, const LayerWeights& at, PublishedParameter& entry, const std::string& module,
           std::string_view what) {
    if (what == "out_norm.weight") return at.pieces.is(entry, module + "norm.weight");
    if (what != "in_proj.weight") return at.pieces.is(entry, module + std::string(what));
    const std::int64_t heads = attention.heads, width = attention.head_dim;
    const WeightPieces::Linear all = at.pieces.linear(module + "qkv_proj", 3 * heads * width, entry.columns, false);
    for (const std::int64_t part : {2, 1, 0}) {
        for (std::int64_t head = 0; head < heads; ++head) at.pieces.append_rows(entry, all, (3 * head + part) * width, width);
    }
    at.pieces.append_rows(entry, at.pieces.linear(module + "output_gate", heads * width, entry.columns, false), 0, heads * width);
}

}  // namespace

bool place_mixer(const LayerWeights& at, PublishedParameter& entry, std::string_view name) {
    const std::string module = at.prefix + std::string(at.names.mixer);
    if (const auto what = rest_behind(name, "mixer.")) return place_state_space(at, entry, module, *what), true;
    const auto what = rest_behind(name, "self_attention.");
    if (!what) return false;
    const auto place_as = [&](const auto* mixer) { return mixer != nullptr && (place(*mixer, at, entry, module, *what), true); };
    return place_as(mixer_as<GatedDeltaNet>(at.layer)) || place_as(mixer_as<KimiDeltaAttention>(at.layer)) ||
           place_as(mixer_as<LightningAttention>(at.layer));
}

}  // namespace mgplan::formats
