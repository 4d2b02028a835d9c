#pragma once
// The halves that layers are made of, by the kind of part that describes each (plan/model/layer_parts.hpp,
// plan/parameters/composed_layer.hpp).

#include <string>
#include <tuple>
#include <variant>

#include "model/layers/attention_beside_mamba.hpp"
#include "model/layers/compressed_attention.hpp"
#include "model/layers/context.hpp"
#include "model/layers/gated_delta_net.hpp"
#include "model/layers/gemma3n_layer.hpp"
#include "model/layers/gemma_attention.hpp"
#include "model/layers/kimi_delta_attention.hpp"
#include "model/layers/lightning_attention.hpp"
#include "model/layers/mamba_mixer.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/moe.hpp"
#include "model/layers/recurrent_block.hpp"
#include "model/layers/selective_mixer.hpp"
#include "model/layers/self_attention.hpp"
#include "model/layers/shared_block_mixer.hpp"
#include "model/layers/short_convolution.hpp"

namespace mgplan::model {

/// The first half of a layer. Each has a type Saved, and forward and backward as SelfAttention has them.
using TokenMixer =
    std::variant<SelfAttention, MambaMixer, GatedDeltaNet, ShortConvolution, AttentionBesideMamba, KimiDeltaAttention, LightningAttention,
                 SelectiveMixer, RecurrentBlock, SharedBlockMixer, GemmaAttention, Gemma3nLayer, CompressedAttention>;

template <class Mixers>
struct SavedOf;
template <class... Mixers>
struct SavedOf<std::variant<Mixers...>> {
    using Type = std::tuple<typename Mixers::Saved...>;
};
/// Tensors that the forward of each kind of mixer saves.
using SavedOfMixers = SavedOf<TokenMixer>::Type;

/// The second half.
using FeedForward = std::variant<Mlp, Moe>;

/// Arguments that a half is made from. `model` outlives it.
struct HalfRequest {
    const ModelSpec& model;
    LayerPart part;
    const WeightTable& weights;
    std::string prefix;  ///< "decoder.layers.0."
    std::int64_t layer;  ///< global number from 0
    EnumSet<RecomputeModule> recompute;
};

/// Make the half of the part's kind, which must be one that layers here compute (assertion). Attention, MLP and MoE halves take their
/// sizes from the fields of the model.
[[nodiscard]] TokenMixer make_mixer(const HalfRequest& request);
[[nodiscard]] FeedForward make_feed_forward(const HalfRequest& request);

}  // namespace mgplan::model
