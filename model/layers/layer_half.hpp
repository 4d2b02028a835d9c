#pragma once
// The halves that layers are made of. Each is built from the struct of its kind (plan/layers).

#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "model/layers/attention_beside_mamba.hpp"
#include "model/layers/compressed_attention.hpp"
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

/// Makes the half whose class takes this kind of mixer or feed-forward. A kind without a class does not compile.
template <class Half, std::size_t kClass = 0, class Kind>
Half half_of(const Kind& kind, const LayerSite& site) {
    using Class = std::variant_alternative_t<kClass, Half>;
    if constexpr (std::is_constructible_v<Class, const Kind&, const LayerSite&>)
        return Half(std::in_place_type<Class>, kind, site);
    else
        return half_of<Half, kClass + 1>(kind, site);
}

}  // namespace mgplan::model
