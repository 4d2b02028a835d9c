#include "model/layers/layer_half.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

template <class Half>
struct HalfKind {
    std::string_view part;
    Half (*make)(const HalfRequest&);
};

template <class Layer>
Layer from_fields(const HalfRequest& r) {
    return Layer(r.model, r.weights, r.prefix, r.layer, r.recompute);
}
template <class Layer>
Layer from_part(const HalfRequest& r) {
    return Layer(r.model, r.part, r.weights, r.prefix, r.layer, r.recompute);
}

constexpr std::array kMixers{
    HalfKind<TokenMixer>{"attention", [](const HalfRequest& r) -> TokenMixer { return from_fields<SelfAttention>(r); }},
    HalfKind<TokenMixer>{"mamba", [](const HalfRequest& r) -> TokenMixer { return from_part<SelectiveMixer>(r); }},
    HalfKind<TokenMixer>{"gated_linear_recurrence", [](const HalfRequest& r) -> TokenMixer { return from_part<RecurrentBlock>(r); }},
    HalfKind<TokenMixer>{"shared_block_mamba2", [](const HalfRequest& r) -> TokenMixer { return from_part<SharedBlockMixer>(r); }},
    HalfKind<TokenMixer>{"gemma_attention", [](const HalfRequest& r) -> TokenMixer { return from_part<GemmaAttention>(r); }},
    HalfKind<TokenMixer>{"gemma3n_layer", [](const HalfRequest& r) -> TokenMixer { return from_part<Gemma3nLayer>(r); }},
    HalfKind<TokenMixer>{"compressed_attention", [](const HalfRequest& r) -> TokenMixer { return from_part<CompressedAttention>(r); }},
    HalfKind<TokenMixer>{"mamba2", [](const HalfRequest& r) -> TokenMixer { return from_part<MambaMixer>(r); }},
    HalfKind<TokenMixer>{"gated_delta_net", [](const HalfRequest& r) -> TokenMixer { return from_part<GatedDeltaNet>(r); }},
    HalfKind<TokenMixer>{"short_convolution", [](const HalfRequest& r) -> TokenMixer { return from_part<ShortConvolution>(r); }},
    HalfKind<TokenMixer>{"attention_beside_mamba2", [](const HalfRequest& r) -> TokenMixer { return from_part<AttentionBesideMamba>(r); }},
    HalfKind<TokenMixer>{"latent_attention", [](const HalfRequest& r) -> TokenMixer { return from_fields<SelfAttention>(r); }},
    HalfKind<TokenMixer>{"lightning_attention", [](const HalfRequest& r) -> TokenMixer { return from_part<LightningAttention>(r); }},
    HalfKind<TokenMixer>{"kimi_delta_attention", [](const HalfRequest& r) -> TokenMixer { return from_part<KimiDeltaAttention>(r); }}};

constexpr std::array kFeedForwards{
    HalfKind<FeedForward>{"mlp", [](const HalfRequest& r) -> FeedForward { return from_fields<Mlp>(r); }},
    HalfKind<FeedForward>{"experts", [](const HalfRequest& r) -> FeedForward { return from_fields<Moe>(r); }}};

template <class Kinds>
auto make_half(const Kinds& kinds, const HalfRequest& request) {
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.part == request.part.kind; });
    MGPLAN_ASSERT(found != kinds.end(), "a layer here computes parts of this kind: " + request.part.kind);
    return found->make(request);
}

}  // namespace

TokenMixer make_mixer(const HalfRequest& request) {
    return make_half(kMixers, request);
}

FeedForward make_feed_forward(const HalfRequest& request) {
    return make_half(kFeedForwards, request);
}

}  // namespace mgplan::model
