#pragma once
// One layer of the decoder: attention or another mixer of tokens, then a dense MLP or an MoE half; or one of the two alone.

#include <optional>

#include "model/graphs/layer_graphs.hpp"
#include "model/layers/context.hpp"
#include "model/layers/layer_half.hpp"
#include "model/layers/residual_streams.hpp"
#include "model/layers/weight_events.hpp"

namespace mgplan::model {

/// One decoder layer.
class DecoderLayer {
public:
    struct Saved {
        SavedOfMixers mixer;  ///< of the layer's kind of mixer; the others empty
        MlpSaved mlp;
        MoeSaved moe;
        ResidualStreamsSaved attention_streams, mlp_streams;  ///< of hyper-connections
        PassMemory graph;                                     ///< in place of the tensors that an eager forward saves
        /// Returns true if a forward saved anything here, without graphs.
        [[nodiscard]] bool kept() const;
    };

    explicit DecoderLayer(const LayerSite& site);

    /// Units that a layer reports: its attention half, its MLP half.
    static constexpr int kUnits = 2;

    /// With CUDA graphs, parts of it are captured or replayed. Then the weights of all that a graph holds are announced
    /// before it, and their gradients after it. `place`: key of the graphs; `leaves`: the output goes to work that is not captured.
    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved,
                                 const UnitEvents& events, const GraphPlace& place = {}, bool leaves = true) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                                  const UnitEvents& events, const GraphPlace& place = {}) const;

    // The halves of an eager forward and backward, each alone; a missing one returns what it is given.

    [[nodiscard]] Tensor attend(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved) const;
    /// `x`: the layer's input, which an MLP parallel to the attention reads; `attended`: the attention's output.
    [[nodiscard]] Tensor transform(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, const Tensor& attended,
                                   Saved& saved) const;
    /// `of_mlp`: the gradient of the layer's input from an MLP parallel to the attention.
    [[nodiscard]] Tensor attend_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                                         Tensor of_mlp = {}) const;
    [[nodiscard]] Tensor transform_backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved) const;

    /// Part of this layer that is captured.
    [[nodiscard]] GraphedPart graphed(const RankContext& context) const;

private:
    /// The second half if it is an MoE half, else nullptr.
    [[nodiscard]] const Moe* mixture() const;
    /// Casts the weights of a half where it multiplies in fp8 and their copies are not fresh; their largest magnitudes are found together.
    void refresh_mixer() const;
    void refresh_feed_forward() const;
    /// From `x` to the layer's output, with a graph that ends at the router: it begins at the attention or, without it, after it.
    [[nodiscard]] Tensor forward_to_router(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved,
                                           const GraphPlace& place, bool with_attention) const;
    /// From the layer's output to the input of that graph.
    [[nodiscard]] Tensor backward_from_router(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                                              const GraphPlace& place, bool with_attention) const;

    bool beside_;  ///< both halves read the layer's input (LayerOrder)
    std::optional<TokenMixer> mixer_;
    std::optional<FeedForward> feed_forward_;
    std::optional<ResidualStreams> attention_streams_, mlp_streams_;  ///< of hyper-connections, around each half
};

}  // namespace mgplan::model
