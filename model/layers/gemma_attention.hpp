#pragma once
// Attention of Gemma 3n and 4 as the first half of a layer (transformers 5.23.0, modeling_gemma3n.py, modeling_gemma4.py): norms of each
// head of queries, keys and, without weights, values; values that are keys before their norm; keys and values taken over from another
// layer; norms before and after; a low-rank bypass; and the layer's own inputs, from a table of words of its own, which in Gemma 4 follow
// the MLP. Implemented for shapes alone.

#include <optional>

#include "model/layers/context.hpp"
#include "model/layers/context_parallel.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/stream_norm.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// Tensors that the inputs of a layer save.
struct LayerInputsSaved {
    Tensor stream;             ///< input of the gate
    Tensor projected, normed;  ///< of the embeddings; the stream is used in their place
    NormStatistics statistics;
    Tensor joined;  ///< gate and input, side by side
    Tensor gated;   ///< input of the map back
    StreamNormSaved behind;
};

/// A gate of the stream times this layer's input from words and embeddings, mapped back and normed. The table is divided over tp by words,
/// the rest is whole on every rank.
class LayerInputs {
public:
    /// `module`: in front of the names of its weights, after the layer's prefix.
    LayerInputs(const LayerSite& site, std::int64_t width, const std::string& module = "");
    /// Returns the term to be added to the stream x, or to others: (rows, hidden).
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, LayerInputsSaved& saved) const;
    /// Adds to the gradient of x, in place; `d_x` may be dy itself, the gradient of what forward returned.
    void backward(const RankContext& context, const Tensor& dy, const Tensor& d_x, LayerInputsSaved& saved) const;

private:
    [[nodiscard]] Tensor ids_of(const RankContext& context, const Tensor& x) const;

    std::int64_t width_;
    Weight words_, norm_;
    DuplicatedLinear projection_, gate_, back_;
    StreamNorm behind_;
};

/// Two products with few values between them, then a norm (LAuReL in its low-rank form, arXiv 2411.07501; Gemma3nTextLaurelBlock). Whole
/// on every tp rank.
class LowRankBypass {
public:
    struct Saved {
        Tensor latent;
        StreamNormSaved norm;
    };
    explicit LowRankBypass(const LayerSite& site);
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, Saved& saved) const;
    /// The gradient of x, which is as forward saw it.
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, const Tensor& x, Saved& saved) const;

private:
    DuplicatedLinear there_, back_;
    StreamNorm norm_;
};

/// Tensors a forward saves.
struct GemmaAttentionSaved {
    StreamNormSaved norm, behind;
    LowRankBypass::Saved bypass;
    Tensor normed;
    Tensor q_raw, k_raw, v_raw;  ///< in front of their norms; with one matrix for both the last two are one
    NormStatistics q_statistics, k_statistics, v_statistics;
    Tensor q, k, v;  ///< of layers that take over keys and values q alone
    AttentionResult core;
    LayerInputsSaved inputs;
};

/// Heads are divided over tp, up to the kv heads.
class GemmaAttention {
public:
    using Saved = GemmaAttentionSaved;
    GemmaAttention(const mgplan::GemmaAttention& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    [[nodiscard]] Tensor turned(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, bool inverse) const;
    /// Another layer's keys or values, of which only the shape matters.
    [[nodiscard]] Tensor taken_over(const RankContext& context, const Tensor& q, std::string_view name) const;
    [[nodiscard]] CoreAttention core_of(const MicrobatchContext& microbatch) const;
    /// The gradient of the projection's output.
    [[nodiscard]] Tensor to_projection(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& d_output,
                                       Saved& saved) const;

    mgplan::GemmaAttention mixer_;
    std::int64_t window_, max_positions_;
    ResidualPath residual_;
    StreamNorm norm_, behind_;
    Weight q_norm_, k_norm_;
    ColumnParallelLinear projection_;
    RowParallelLinear output_;
    std::optional<LayerInputs> inputs_;
    std::optional<LowRankBypass> bypass_;  ///< with it the result is divided by sqrt(2)
};

}  // namespace mgplan::model
