#pragma once
// The distinct kinds of layers of a model, by index, and the distinct halves that they are made of: what costs, splits and memory are
// counted by. A kind is a mixer of tokens, a feed-forward, whether a sliding window is on and whether products stay in 16 bits; either half
// may be missing.

#include <cstdint>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/megatron_switches.hpp"

namespace mgplan {

/// A mixer, or a feed-forward, that some kinds of layers have.
struct LayerHalf {
    Layer layer;  ///< the first layer that has this half, without its other one; attention has the model's window and positions
    bool carries_state = false;  ///< a mixer with a state along the sequence: any but attention
    bool mixture = false;        ///< a feed-forward of experts
};

/// A kind of layer by its halves' indices in LayerKinds.
struct LayerKindHalves {
    static constexpr int kNone = -1;
    int mixer = kNone, feed_forward = kNone;
    bool windowed = false;  ///< its attention has the model's sliding window
    bool mixture = false;   ///< its feed-forward is an MoE layer
    bool in_bf16 = false;   ///< its products stay in 16 bits where those of others are quantised
    bool operator==(const LayerKindHalves&) const = default;
    /// Halves that are there: 1 or 2.
    [[nodiscard]] int count() const { return (mixer == kNone ? 0 : 1) + (feed_forward == kNone ? 0 : 1); }
};

/// True if the norm in front of attention is a module of its own, as with latent attention, and no part of the linear layer that follows
/// (Megatron-LM d98e8a64 with Transformer Engine, models/gpt/gpt_layer_specs.py). That in front of experts always is one.
[[nodiscard]] bool attention_norm_stands_alone(const ModelSpec& model);

/// Halves and kinds of one model. Feed-forwards and kinds without experts come first, then those without a window. If some layers stay in
/// 16 bits, all halves follow once more with LayerPrecision::bf16.
struct LayerKinds {
    std::vector<LayerHalf> mixers, feed_forwards;
    std::vector<LayerKindHalves> kinds;
    std::vector<std::uint16_t> of_layer;  ///< index of each decoder layer's kind
    std::uint16_t of_prediction = 0;      ///< index of the kind of a layer of multi-token prediction; 0 without
    /// True if CUDA graphs may capture the decoder layer of multi-token prediction. False for a HybridStack, which models have whose layers
    /// have one half each (Megatron-core transformer/cuda_graphs.py, _layer_is_graphable).
    bool prediction_in_graphs = true;
    /// By kind: the first that differs from it in its window alone, with the same memory and the same number of parameters.
    std::vector<std::uint16_t> without_window;
    std::vector<std::int64_t> first_layer;  ///< by kind: its first layer, for typed_layer()

    bool attention_norm_alone = false;  ///< attention_norm_stands_alone()
    bool mixture_norm_alone = false;    ///< the same of the norm in front of experts: there is one

    [[nodiscard]] std::size_t size() const { return kinds.size(); }
    /// True if each decoder layer has one half, as in a HybridStack (Megatron-core models/hybrid).
    [[nodiscard]] bool one_half_each() const;
    /// Index of the only feed-forward of experts, in the training's precision; LayerKindHalves::kNone without.
    [[nodiscard]] int mixture() const;
    /// The mixer of a layer of multi-token prediction; first_half() where it has none.
    [[nodiscard]] const LayerHalf& mixer_of_prediction() const;
    /// The first mixer, or without mixers the first feed-forward.
    [[nodiscard]] const LayerHalf& first_half() const { return mixers.empty() ? feed_forwards.front() : mixers.front(); }
};

/// The model has passed validate(), and its layers are computed (assertion). Throws ConfigError where it has two kinds of MoE layers.
/// O(layers). `switches` name the layers that stay in 16 bits; those of multi-token prediction never do (Megatron-core
/// multi_token_prediction.py enters the context of fp8 without a layer's number).
[[nodiscard]] LayerKinds layer_kinds(const ModelSpec& model, const MegatronSwitches& switches = {});

/// True if Megatron-LM builds the model as a HybridStack: a pattern gives the number of layers, their kinds, and with | their stages.
/// Errors and cost are those of layer_kinds().
[[nodiscard]] bool layers_by_pattern(const ModelSpec& model);

}  // namespace mgplan
