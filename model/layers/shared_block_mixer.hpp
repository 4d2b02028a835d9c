#pragma once
// Mamba-2 after a block of attention and an MLP whose weights layers share, as the first half of a layer (Zamba2, arXiv 2411.15242;
// transformers 5.23.0, modeling_zamba2.py, Zamba2HybridLayer): stream and embeddings joined, norm, attention, norm, MLP with an adapter of
// the layer's own, a map of the layer's own, the addition to the input of Mamba-2's norm. Implemented for shapes alone: in place of the
// embeddings it uses the stream, which is as wide, and which takes up their gradient.

#include <array>
#include <optional>

#include "model/layers/context.hpp"
#include "model/layers/context_parallel.hpp"
#include "model/layers/mamba_mixer.hpp"
#include "model/layers/residual.hpp"
#include "model/layers/stream_norm.hpp"
#include "model/layers/tensor_parallel.hpp"
#include "model/ops/norm.hpp"

namespace mgplan::model {

/// A small map added to a projection: whole on every rank down, divided over tp up.
struct Adapter {
    DuplicatedLinear down;
    ColumnParallelLinear up;
};

/// Tensors a forward saves.
struct SharedBlockMixerSaved {
    Tensor joined, normed_joined;  ///< stream and embeddings side by side, before their norm and after it
    NormStatistics joined_statistics;
    std::array<Tensor, 3> attention_latents;  ///< of adapters of queries, keys and values
    Tensor q, k, v;
    AttentionResult core;
    Tensor attended, normed_attended;
    NormStatistics attended_statistics;
    Tensor mlp_latent;     ///< of the MLP's adapter
    Tensor before, after;  ///< of the activation
    Tensor mlp_output;     ///< input of the map
    StreamNormSaved norm;
    Tensor normed;  ///< input of Mamba-2's projection
    MambaMixerSaved state;
};

/// Heads of both mixers and columns of the MLP are divided over tp. Weights that layers share lie on one stage: no pipeline.
class SharedBlockMixer {
public:
    using Saved = SharedBlockMixerSaved;
    SharedBlockMixer(const SharedBlockMamba2& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// From x to the output of the map, and back from its gradient to that of x.
    [[nodiscard]] Tensor block(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    [[nodiscard]] Tensor block_backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy,
                                        Saved& saved) const;
    /// Queries, keys and values turned by their positions, or back.
    void turn(const RankContext& context, const MicrobatchContext& microbatch, Tensor& q, Tensor& k, bool inverse) const;

    SharedBlock block_;
    std::int64_t hidden_, max_positions_;
    ResidualPath residual_;
    Weight joined_norm_, attended_norm_;
    ColumnParallelLinear qkv_, first_;
    RowParallelLinear output_, second_;
    std::optional<Adapter> mlp_adapter_;
    std::array<std::optional<Adapter>, 3> attention_adapters_;
    DuplicatedLinear map_;
    StreamNorm norm_;
    MambaMixer state_;
};

}  // namespace mgplan::model
