// Attention in checkpoints: joined and separate projections, norms of heads, latents.

#include <tuple>

#include <fmt/format.h>

#include "formats/hugging_face/layer_weights.hpp"

namespace mgplan::formats {
namespace {

std::int64_t rotated_width(const LayerWeights& at) {
    if (at.fields.position != PositionEmbedding::rope) return 0;
    return static_cast<std::int64_t>(static_cast<double>(at.fields.head_dim) * at.fields.rotary_fraction) / 2 * 2;
}

/// Weights of one head for all, or of each head.
void place_head_norm(const LayerWeights& at, PublishedParameter& entry, const std::string& module, std::int64_t heads) {
    const std::int64_t width = at.fields.head_dim;
    const bool per_head = at.fields.qk_norm_per_head;
    if (at.names.norms_around_0) entry.added = 1;
    if (per_head && at.names.head_norms_apart) {
        for (std::int64_t head = 0; head < heads; ++head)
            at.pieces.append_head(entry, {at.pieces.tensor(fmt::format("{}.norms.{}.weight", module, head), {width}), 1, 1}, 0, width,
                                  rotated_width(at));
        return;
    }
    const WeightPieces::Linear from{at.pieces.tensor(module + ".weight", per_head ? std::vector{heads, width} : std::vector{entry.rows}), 1,
                                    1};
    for (std::int64_t head = 0; head < entry.rows / width; ++head)
        at.pieces.append_head(entry, from, head * width, width, rotated_width(at));
}

/// Here each kv head's queries (and the output's gates), its key and its value follow each other.
void place_qkv(const LayerWeights& at, PublishedParameter& entry, const std::string& module, bool is_bias) {
    const std::int64_t width = at.fields.head_dim, heads = at.fields.heads, kv_heads = at.fields.kv_heads, group = heads / kv_heads;
    const std::int64_t gated = at.fields.attention_output_gate ? 2 : 1;  // a head's gate follows its query
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
            at.pieces.append_head(entry, q, row_of(head, 0), width, rotated_width(at));
        for (std::int64_t head = kv * group; gated == 2 && head < (kv + 1) * group; ++head)
            at.pieces.append_rows(entry, q, row_of(head, 0) + width, width);
        at.pieces.append_head(entry, k, row_of(kv, 1), width, rotated_width(at));
        at.pieces.append_rows(entry, v, row_of(kv, 2), width);
    }
}

}  // namespace

bool place_attention(const LayerWeights& at, PublishedParameter& entry, std::string_view rest) {
    const std::string module = at.prefix + std::string(at.names.attention);
    if (rest == "self_attention.core_attention.softmax_offset") return at.pieces.is(entry, module + std::string(at.names.sinks)), true;
    if (const auto what = rest_behind(rest, "self_attention.linear_proj"))
        return at.pieces.is_linear(entry, module + std::string(at.names.attention_output), *what == ".bias"), true;
    if (const auto what = rest_behind(rest, "self_attention.linear_qkv")) return place_qkv(at, entry, module, *what == ".bias"), true;
    for (const auto& [own, published, heads] :
         {std::tuple(std::string_view("self_attention.q_layernorm.weight"), at.names.q_norm, at.fields.heads),
          std::tuple(std::string_view("self_attention.k_layernorm.weight"), at.names.k_norm, at.fields.kv_heads)}) {
        if (rest == own) return place_head_norm(at, entry, module + std::string(published), heads), true;
    }
    return false;
}

bool place_latent(const LayerWeights& at, PublishedParameter& entry, std::string_view rest) {
    const std::string module = at.prefix + std::string(at.names.attention);
    if (!at.fields.mla) return false;
    const MlaSpec& mla = *at.fields.mla;
    if (rest == "self_attention.linear_q_down_proj.weight") return at.pieces.is(entry, module + "q_a_proj.weight"), true;
    if (rest == "self_attention.linear_kv_up_proj.weight") return at.pieces.is(entry, module + "kv_b_proj.weight"), true;
    if (rest == "self_attention.linear_q_up_proj.layer_norm_weight") return at.pieces.is(entry, module + "q_a_layernorm.weight"), true;
    if (rest == "self_attention.linear_kv_up_proj.layer_norm_weight") return at.pieces.is(entry, module + "kv_a_layernorm.weight"), true;
    if (rest == "self_attention.linear_kv_down_proj.weight") {
        const WeightPieces::Linear from = at.pieces.linear(module + "kv_a_proj_with_mqa", entry.rows, entry.columns, false);
        at.pieces.append_rows(entry, from, 0, mla.kv_lora_rank);
        at.pieces.append_head(entry, from, mla.kv_lora_rank, mla.qk_rope_head_dim, mla.qk_rope_head_dim);
        return true;
    }
    const bool direct = rest == "self_attention.linear_q_proj.weight";
    if (!direct && rest != "self_attention.linear_q_up_proj.weight") return false;
    const WeightPieces::Linear from = at.pieces.linear(module + (direct ? "q_proj" : "q_b_proj"), entry.rows, entry.columns, false);
    for (std::int64_t head = 0; head < at.fields.heads; ++head) {
        const std::int64_t first = head * at.fields.qk_head_dim();
        at.pieces.append_rows(entry, from, first, mla.qk_nope_head_dim);
        at.pieces.append_head(entry, from, first + mla.qk_nope_head_dim, mla.qk_rope_head_dim, mla.qk_rope_head_dim);
    }
    return true;
}

}  // namespace mgplan::formats
