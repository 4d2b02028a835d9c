#pragma once
// Attention of DeepSeek-V4 as the first half of a layer (transformers 5.23.0, modeling_deepseek_v4.py, DeepseekV4Attention; Megatron-LM's
// branch dev at d48bd6be, transformer/experimental_attention_variant/deepseek_v4_hybrid_attention.py and csa.py): queries through a latent
// and a norm of each head, one head whose keys are its values, a window, also compressed keys of which an indexer may choose some, a
// sink for each head, and an output projection whose first map works by groups of heads. Implemented for shapes alone, and for tp = 1.

#include <optional>
#include <string>

#include "model/layers/context.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/stream_norm.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/compressed_attention.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rotary.hpp"

namespace mgplan::model {

/// Tensors the forward of a compressor saves.
struct KeyCompressorSaved {
    Tensor tokens, gates;  ///< (rows, columns): terms of the windows' sums, and their weights
    Tensor raw;            ///< (keys, width): in front of the norm
    NormStatistics statistics;
};

/// Tokens become compressed keys: two products, sums by windows, a norm, rotary positions of each window's first token. Products stay in 16
/// bits where others multiply in fp8 (csa.py, Compressor).
class KeyCompressor {
public:
    /// `prefix`: "decoder.layers.0.self_attention.core_attention.compressor."
    KeyCompressor(const mgplan::CompressedAttention& mixer, const LayerSite& site, const std::string& prefix);

    /// normed (rows, hidden) -> (keys of all sequences, width).
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                                 KeyCompressorSaved& saved) const;
    /// The gradient of `normed`; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_keys,
                                  const Tensor& normed, KeyCompressorSaved& saved) const;

private:
    Compression compression_;
    std::int64_t rotated_;
    RotaryAngles angles_;
    DuplicatedLinear tokens_, gates_;
    Weight places_, norm_;
};

/// Chooses the compressed keys that each query sees, by scores of keys of its own, forward alone, since the choice has no gradient; the
/// indexer's own loss is not computed (CSAIndexer).
class CompressedKeyIndexer {
public:
    /// `prefix`: "decoder.layers.0.self_attention.core_attention.indexer.".
    CompressedKeyIndexer(const mgplan::CompressedAttention& mixer, const LayerSite& site, const std::string& prefix);

    /// normed (rows, hidden), q_latent (rows, q_lora_rank) after its norm -> (rows, at most top_k) int32.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed,
                                 const Tensor& q_latent) const;

private:
    mgplan::CompressedAttention mixer_;
    RotaryAngles angles_;
    KeyCompressor keys_;
    Weight queries_, weights_;
};

/// Tensors a forward saves. Selective recompute of layernorm drops `normed`, of mla_up_proj all from q_raw to keys.
struct CompressedAttentionSaved {
    StreamNormSaved norm;
    Tensor normed;
    Tensor latent_raw, latent;  ///< (rows, q_lora_rank) before its norm and after it
    NormStatistics latent_statistics;
    Tensor q_raw, q;  ///< (rows, heads, width)
    NormStatistics q_statistics;
    Tensor keys_raw, keys;  ///< (rows, width)
    NormStatistics keys_statistics;
    KeyCompressorSaved compressor;
    Tensor compressed;  ///< (keys of all sequences, width)
    Tensor chosen;      ///< (rows, at most top_k) int32
    AttentionResult core;
    Tensor turned;  ///< the core's output, whose values are turned back: input of the map by groups
    Tensor joined;  ///< (rows, groups · rank): input of the output projection
};

class CompressedAttention {
public:
    using Saved = CompressedAttentionSaved;
    CompressedAttention(const mgplan::CompressedAttention& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// Returns false if the sequence is shorter than a window of tokens, so that it has no compressed keys.
    [[nodiscard]] bool compresses(const MicrobatchContext& microbatch) const;
    [[nodiscard]] SparseSight sight(const MicrobatchContext& microbatch) const;
    /// Queries and keys from the latent and the normed rows.
    void project(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& normed, Saved& saved) const;
    /// The gradient of `normed` by queries and keys.
    [[nodiscard]] Tensor project_backward(const RankContext& context, const MicrobatchContext& microbatch,
                                          const SparseAttentionGradients& gradients, Saved& saved) const;

    mgplan::CompressedAttention mixer_;
    std::int64_t window_;
    ResidualPath residual_;
    RotaryAngles angles_;
    Compression compression_;
    bool keeps_normed_, keeps_projected_;
    StreamNorm norm_;
    Weight latent_norm_, keys_norm_, sinks_, by_groups_;
    DuplicatedLinear down_, to_keys_;
    ColumnParallelLinear up_;
    RowParallelLinear output_;
    std::optional<KeyCompressor> compressor_;
    std::optional<CompressedKeyIndexer> indexer_;
};

}  // namespace mgplan::model
