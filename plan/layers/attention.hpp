#pragma once

#include <optional>

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Norms of queries and keys: one head's weights for all heads (Qwen3), weights of each head (Cohere), or one norm over all heads (OLMo 2).
enum class QkNorm : std::uint8_t { none, shared_by_heads, per_head, full_width };
constexpr auto words_of(QkNorm /*type*/) {
    return std::array<std::string_view, 4>{"none", "shared_by_heads", "per_head", "full_width"};
}

/// Numbers that change attention scores in every kind of softmax attention.
struct AttentionScores {
    double multiplier = 0;  ///< 0: 1 / sqrt(width of a head's queries)
    double softcap = 0;     ///< scores become cap · tanh(score / cap) (Gemma 2); 0: they do not
    double dropout = 0;
    bool sinks = false;  ///< one trained logit per head (gpt-oss)
    bool operator==(const AttentionScores&) const = default;
    MGPLAN_MEMBERS(multiplier, softcap, dropout, sinks)
};

/// Softmax attention with one packed projection to queries, keys and values. Widths in elements.
struct Attention {
    static constexpr std::string_view kKind = "attention";
    static constexpr MixerTraits kTraits{.words = "attention"};
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  ///< = heads without grouped-query attention
    std::int64_t head_dim = 0;
    std::optional<Rotary> rotary = {};
    bool qkv_bias = false;
    bool output_bias = false;
    /// The output is multiplied by the sigmoid of a gate as wide as the queries, from the packed projection (Qwen3-Next; Megatron-LM's
    /// --attention-output-gate).
    bool output_gate = false;
    QkNorm qk_norm = QkNorm::none;
    bool qk_norm_after_rotary = false;  ///< (Hunyuan)
    double qkv_clip = 0;                ///< queries, keys and values are clipped at ± this (OLMo 1); 0: they are not
    AttentionScores scores = {};
    bool operator==(const Attention&) const = default;
    MGPLAN_MEMBERS(heads, kv_heads, head_dim, rotary, qkv_bias, output_bias, output_gate, qk_norm, qk_norm_after_rotary, qkv_clip, scores)
};

void list_tensors(const Attention& attention, TensorLister& list);

}  // namespace mgplan
