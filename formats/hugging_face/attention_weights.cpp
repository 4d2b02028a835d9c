// Attention in checkpoints: joined and separate projections, norms of heads, latents.

#include <tuple>

#include <fmt/format.h>

#include "formats/hugging_face/layer_weights.hpp"

namespace mgplan::formats {
namespace {

/// nullptr without a packed projection of queries, keys and values.
const Attention* packed_attention(const LayerWeights& at) {
    const auto* const beside = mixer_as<AttentionBesideMamba2>(at.layer);
    return beside != nullptr ? &beside->attention : mixer_as<Attention>(at.layer);
}

std::int64_t rotated_width(const Attention& attention) {
    return attention.rotary ? static_cast<std::int64_t>(static_cast<double>(attention.head_dim) * attention.rotary->fraction) / 2 * 2 : 0;
}

/// Weights of one head for all, or of each head.
void place_head_norm(const Attention& attention, const LayerWeights& at, PublishedParameter& entry, const std::string& module,
                     std::int64_t heads) {
    const std::int64_t width = attention.head_dim;
    const bool per_head = attention.qk_norm == QkNorm::per_head;
    if (at.names.norms_around_0) entry.added = 1;
    if (per_head && at.names.head_norms_apart) {
        for (std::int64_t head = 0; head < heads; ++head)
            at.pieces.append_head(entry, {at.pieces.tensor(fmt::format("{}.norms.{}.weight", module, head), {width}), 1, 1}, 0, width,
                                  rotated_width(attention));
        return;
    }
    const WeightPieces::Linear from{at.pieces.tensor(module + ".weight", per_head ? std::vector{heads, width} : std::vector{entry.rows}), 1,
                                    1};
    for (std::int64_t head = 0; head < entry.rows / width; ++head)
        at.pieces.append_head(entry, from, head * width, width, rotated_width(attention));
}

/// Here each kv head's queries (and the output's gates), its key and its value follow each other.
void place_qkv(const Attention& attention, const LayerWeights& at, PublishedParameter& entry, const std::string& module, bool is_bias) {
    const std::int64_t width = attention.head_dim, heads = attention.heads, kv_heads = attention.kv_heads, group = heads / kv_heads;
    const std::int64_t gated = attention.output_gate ? 2 : 1;  // a head's gate follows its query
    const bool joined = at.names.qkv_rows != QkvRows::separate;
    const std::string all(at.names.qkv);
    const WeightPieces::Linear q = joined
                                       ? at.pieces.linear(module + all, entry.rows, entry.columns, is_bias)
                                       : at.pieces.linear(module + std::string(at.names.q), gated * heads * width, entry.columns, is_bias);
    const WeightPieces::Linear k =
        joined ? q : at.pieces.linear(module + std::string(at.names.k), kv_heads * width, entry.columns, is_bias);
    const WeightPieces::Linear v =
        joined ? q : at.pieces.linear(module + std::string(at.names.v), kv_heads * width, entry.columns, is_bias);
    const bool by_head = at.names.qkv_rows == QkvRows::by_head, by_group = at.names.qkv_rows == QkvRows::by_group;
    const auto row_of = [&](std::int64_t head, std::int64_t part) {
        if (by_head) return (3 * head + part) * width;
        if (by_group) return (part == 0 ? head / group * (group + 2) + head % group : head * (group + 2) + group + part - 1) * width;
        const std::int64_t before = !joined ? 0 : part == 0 ? 0 : part == 1 ? heads * width : (heads + kv_heads) * width;
        return before + head * width * (part == 0 ? gated : 1);
    };
    for (std::int64_t kv = 0; kv < kv_heads; ++kv) {
        for (std::int64_t head = kv * group; head < (kv + 1) * group; ++head)
            at.pieces.append_head(entry, q, row_of(head, 0), width, rotated_width(attention));
        for (std::int64_t head = kv * group; gated == 2 && head < (kv + 1) * group; ++head)
            at.pieces.append_rows(entry, q, row_of(head, 0) + width, width);
        at.pieces.append_head(entry, k, row_of(kv, 1), width, rotated_width(attention));
        at.pieces.append_rows(entry, v, row_of(kv, 2), width);
    }
}

}  // namespace

bool place_attention(const LayerWeights& at, PublishedParameter& entry, std::string_view rest) {
    const std::string module = at.prefix + std::string(at.names.attention);
    if (rest == "self_attention.core_attention.softmax_offset") return at.pieces.is(entry, module + std::string(at.names.sinks)), true;
    if (const auto what = rest_behind(rest, "self_attention.linear_proj"))
        return at.pieces.is_linear(entry, module + std::string(at.names.attention_output), *what == ".bias"), true;
    const Attention* const attention = packed_attention(at);
    if (attention == nullptr) return false;
    if (const auto what = rest_behind(rest, "self_attention.linear_qkv"))
        return place_qkv(*attention, at, entry, module, *what == ".bias"), true;
    for (const auto& [own, published, heads] :
         {std::tuple(std::string_view("self_attention.q_layernorm.weight"), at.names.q_norm, attention->heads),
          std::tuple(std::string_view("self_attention.k_layernorm.weight"), at.names.k_norm, attention->kv_heads)}) {
        if (rest == own) return place_head_norm(*attention, at, entry, module + std::string(published), heads), true;
    }
    return false;
}

bool place_latent(const LayerWeights& at, PublishedParameter& entry, std::string_view rest) {
    const std::string module = at.prefix + std::string(at.names.attention);
    const auto* const latent = mixer_as<LatentAttention>(at.layer);
    if (latent == nullptr) return false;
    if (rest == "self_attention.linear_q_down_proj.weight") return at.pieces.is(entry, module + "q_a_proj.weight"), true;
    if (rest == "self_attention.linear_kv_up_proj.weight") return at.pieces.is(entry, module + "kv_b_proj.weight"), true;
    if (rest == "self_attention.linear_q_up_proj.layer_norm_weight") return at.pieces.is(entry, module + "q_a_layernorm.weight"), true;
    if (rest == "self_attention.linear_kv_up_proj.layer_norm_weight") return at.pieces.is(entry, module + "kv_a_layernorm.weight"), true;
    if (rest == "self_attention.linear_kv_down_proj.weight") {
        const WeightPieces::Linear from = at.pieces.linear(module + "kv_a_proj_with_mqa", entry.rows, entry.columns, false);
        at.pieces.append_rows(entry, from, 0, latent->kv_lora_rank);
        at.pieces.append_head(entry, from, latent->kv_lora_rank, latent->qk_rope_head_dim, latent->qk_rope_head_dim);
        return true;
    }
    const bool direct = rest == "self_attention.linear_q_proj.weight";
    if (!direct && rest != "self_attention.linear_q_up_proj.weight") return false;
    const WeightPieces::Linear from = at.pieces.linear(module + (direct ? "q_proj" : "q_b_proj"), entry.rows, entry.columns, false);
    for (std::int64_t head = 0; head < latent->heads; ++head) {
        const std::int64_t first = head * (latent->qk_nope_head_dim + latent->qk_rope_head_dim);
        at.pieces.append_rows(entry, from, first, latent->qk_nope_head_dim);
        at.pieces.append_head(entry, from, first + latent->qk_nope_head_dim, latent->qk_rope_head_dim, latent->qk_rope_head_dim);
    }
    return true;
}

}  // namespace mgplan::formats
