#include "plan/model/layers_of_model.hpp"

#include <algorithm>

namespace mgplan {
namespace {

/// The attention of Gemma's kinds; nullptr for other mixers.
const GemmaAttention* gemma_attention_in(const Mixer& mixer) {
    if (const auto* whole = std::get_if<Gemma3nLayer>(&mixer)) return &whole->attention;
    return std::get_if<GemmaAttention>(&mixer);
}

}  // namespace

const MixerTraits& traits_of(const Mixer& mixer) {
    return std::visit([](const auto& kind) -> const MixerTraits& { return kind.kTraits; }, mixer);
}

bool has_mixer_with(const ModelSpec& model, bool MixerTraits::*trait) {
    return has_mixer(model, [&](const Mixer& mixer) { return traits_of(mixer).*trait; });
}

bool has_counted_layers(const ModelSpec& model) {
    return std::any_of(model.kinds.begin(), model.kinds.end(), [](const NamedLayer& kind) { return !kind.layer.counted.empty(); });
}

bool has_dense_mlp(const ModelSpec& model) {
    if (model.kinds.empty())
        return !model.moe || std::find(model.moe_layers.begin(), model.moe_layers.end(), false) != model.moe_layers.end();
    return std::any_of(model.kinds.begin(), model.kinds.end(),
                       [](const NamedLayer& kind) { return feed_forward_as<Mlp>(kind.layer) != nullptr; });
}

bool reads_first_stage(const Mixer& mixer) {
    const GemmaAttention* const gemma = gemma_attention_in(mixer);
    return std::holds_alternative<SharedBlockMamba2>(mixer) || (gemma != nullptr && gemma->layer_input_width > 0);
}

bool shares_between_layers(const ModelSpec& model) {
    return has_mixer(model, [](const Mixer& mixer) {
        const GemmaAttention* const gemma = gemma_attention_in(mixer);
        return reads_first_stage(mixer) || (gemma != nullptr && gemma->shares_kv);
    });
}

bool chooses_by_words(const ModelSpec& model, std::int64_t layer) {
    if (model.kinds.empty() || layer >= std::ssize(model.kind_of_layer)) return false;
    const auto* const mixture = feed_forward_as<Mixture>(model.kinds[model.kind_of_layer[static_cast<std::size_t>(layer)]].layer);
    return mixture != nullptr && mixture->choosing_words > 0;
}

}  // namespace mgplan
