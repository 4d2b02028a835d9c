#pragma once

#include "plan/layers/layer_tensor.hpp"

namespace mgplan {

/// Attention of DeepSeek-V4 (modeling_deepseek_v4.py): queries through a latent, one head whose keys are its values, an output projection
/// that is block-diagonal over groups of heads, one trained logit per head. The window is the layer's. Widths in elements.
struct CompressedAttention {
    static constexpr std::string_view kKind = "compressed_attention";
    static constexpr MixerTraits kTraits{.words = "compressed attention",
                                         .timed_at_least = "the compressed attention of DeepSeek-V4",
                                         .between_streams = true,
                                         .projects_latents = true,
                                         // Megatron-LM's branch dev at d48bd6be, deepseek_v4_hybrid_attention.py, asserts it.
                                         .keeps_core = true,
                                         .joins_documents = true,
                                         .published_as = "models of DeepSeek-V4's kind"};
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t rotary_dim = 0;  ///< values of each head that are rotated
    std::int64_t q_lora_rank = 0;
    std::int64_t output_groups = 0;
    std::int64_t output_group_rank = 0;
    std::int64_t compression_rate = 0;  ///< tokens of one compressed key; 0: the layer sees its window alone
    bool overlaps = false;              ///< a compressed key comes from two windows
    std::int64_t index_heads = 0;       ///< of what chooses compressed keys; 0: all are seen
    std::int64_t index_head_dim = 0;
    std::int64_t index_top_k = 0;  ///< compressed keys that are chosen
    Rotary rotary = {};
    bool operator==(const CompressedAttention&) const = default;
    MGPLAN_MEMBERS(heads, head_dim, rotary_dim, q_lora_rank, output_groups, output_group_rank, compression_rate, overlaps, index_heads,
                   index_head_dim, index_top_k, rotary)
};

void list_tensors(const CompressedAttention& attention, TensorLister& list);

}  // namespace mgplan
