#pragma once

#include "plan/layers/layer_tensor.hpp"
#include "plan/layers/mlp.hpp"

namespace mgplan {

/// Attention of Gemma 3n and 4 (modeling_gemma3n.py, modeling_gemma4.py), with norms of each head's queries, keys and values. The window is
/// the layer's. Widths in elements.
struct GemmaAttention {
    static constexpr std::string_view kKind = "gemma_attention";
    static constexpr MixerTraits kTraits{
        .words = "attention of Gemma 4", .shapes_alone = "the attention of Gemma 4", .published_as = "models of Gemma 3n's or 4's kind"};
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    bool shares_kv = false;     ///< keys and values are an earlier layer's
    bool key_is_value = false;  ///< one matrix gives both
    bool bias = false;          ///< of queries, keys, values and the output
    /// Inputs that the layer has of its own, from a table of words and the embeddings; 0: none.
    std::int64_t layer_input_width = 0;
    std::int64_t layer_input_rows = 0;
    std::int64_t bypass_rank = 0;  ///< values between the two matrices of a bypass of the attention; 0: none
    Rotary rotary = {};
    bool operator==(const GemmaAttention&) const = default;
    MGPLAN_MEMBERS(heads, kv_heads, head_dim, shares_kv, key_is_value, bias, layer_input_width, layer_input_rows, bypass_rank, rotary)
};

/// A whole layer of Gemma 3n (modeling_gemma3n.py, Gemma3nTextDecoderLayer) after the norms of its attention: that attention, a gated MLP
/// with its norms, and the tensors that predict and correct the residual streams.
struct Gemma3nLayer {
    static constexpr std::string_view kKind = "gemma3n_layer";
    static constexpr MixerTraits kTraits{.words = "Gemma 3n's attention and MLP",
                                         .timed_at_least = "the residual streams of Gemma 3n",
                                         .shapes_alone = "the attention of Gemma 3n",
                                         .published_as = GemmaAttention::kTraits.published_as};
    GemmaAttention attention;
    Mlp mlp;
    double mlp_zero_share = 0;  ///< share of zeros that the MLP's gate is cut to
    std::int64_t streams = 0;
    bool operator==(const Gemma3nLayer&) const = default;
    MGPLAN_MEMBERS(attention, mlp, mlp_zero_share, streams)
};

void list_tensors(const GemmaAttention& attention, TensorLister& list);
void list_tensors(const Gemma3nLayer& layer, TensorLister& list);

}  // namespace mgplan
