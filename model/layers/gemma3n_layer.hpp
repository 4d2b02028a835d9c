#pragma once
// A whole layer of Gemma 3n (transformers 5.23.0, modeling_gemma3n.py, Gemma3nTextDecoderLayer): of several residual streams the layer
// reads and changes the first; attention with a low-rank bypass and an MLP follow each other on it, the others are predicted before and
// corrected after (model/ops/alternating_updates.hpp), and the layer's own inputs are added to them. Implemented for shapes alone.

#include "model/layers/gemma_attention.hpp"
#include "model/layers/mlp.hpp"

namespace mgplan::model {

/// Computes weights of the streams from one of them: a norm, a product to a value for each stream, tanh. Whole on every tp rank.
class StreamRouter {
public:
    struct Saved {
        StreamNormSaved norm;
        Tensor normed, squashed;
    };
    explicit StreamRouter(const LayerSite& site);
    /// x (rows, h) -> (rows, n)
    [[nodiscard]] Tensor forward(const RankContext& context, const Tensor& x, Saved& saved) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const Tensor& dy, Saved& saved) const;

private:
    StreamNorm norm_;
    DuplicatedLinear values_;
};

/// Tensors a forward saves.
struct Gemma3nLayerSaved {
    Tensor x;  ///< all streams
    StreamRouter::Saved before, behind;
    Tensor matrices, predictions;
    GemmaAttentionSaved attention;
    MlpSaved mlp;
    Tensor activated;    ///< output of attention and MLP
    Tensor corrections;  ///< a weight for each stream
    Tensor corrected;    ///< the first stream, weighed by columns for the layer's inputs
    LayerInputsSaved inputs;
};

/// Attention and MLP are divided over tp by heads and columns, all else is whole on every rank.
class Gemma3nLayer {
public:
    using Saved = Gemma3nLayerSaved;
    Gemma3nLayer(const mgplan::Gemma3nLayer& mixer, const LayerSite& site);

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// Returns the gradient of x; adds to the main gradients. Consumes what was saved.
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& dy, Saved& saved) const;

private:
    /// The gradient of the output of attention and MLP; dy becomes that of the predictions.
    [[nodiscard]] Tensor correction_backward(const RankContext& context, const Tensor& dy, Saved& saved) const;

    std::int64_t streams_;
    StreamRouter router_;
    DuplicatedLinear prediction_, correction_;
    Weight output_scale_;
    GemmaAttention attention_;
    Mlp mlp_;
    LayerInputs inputs_;
};

}  // namespace mgplan::model
