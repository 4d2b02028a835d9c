#pragma once

#include "plan/layers/attention.hpp"

namespace mgplan {

/// Multi-latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1). Widths in elements.
struct LatentAttention {
    static constexpr std::string_view kKind = "latent_attention";
    static constexpr MixerTraits kTraits{.words = "latent attention", .projects_latents = true};
    std::int64_t heads = 0;
    std::int64_t q_lora_rank = 0;  ///< 0: queries are projected directly
    std::int64_t kv_lora_rank = 0;
    std::int64_t qk_nope_head_dim = 0;
    std::int64_t qk_rope_head_dim = 0;
    std::int64_t v_head_dim = 0;
    std::optional<Rotary> rotary = {};
    bool latent_norms = false;
    bool query_norm = false;         ///< of queries without a latent (MlaSpec::query_norm)
    double latent_norm_epsilon = 0;  ///< 0: that of the layer's norms
    bool output_bias = false;
    /// The indexer that chooses the keys each query sees (DeepSeek-V3.2-Exp, section 2.1; Megatron-LM's --experimental-attention-variant
    /// dsa): heads of `index_head_dim` values, and the number of keys chosen. 0: every query sees all before it.
    std::int64_t index_heads = 0;
    std::int64_t index_head_dim = 0;
    std::int64_t index_top_k = 0;
    AttentionScores scores = {};
    bool operator==(const LatentAttention&) const = default;
    MGPLAN_MEMBERS(heads, q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim, rotary, latent_norms, query_norm,
                   latent_norm_epsilon, output_bias, index_heads, index_head_dim, index_top_k, scores)
};

void list_tensors(const LatentAttention& attention, TensorLister& list);

}  // namespace mgplan
