#pragma once
// Questions about a model's layers that their kinds answer.

#include "plan/model/model_spec.hpp"

namespace mgplan {

/// The facts of a mixer's kind.
[[nodiscard]] const MixerTraits& traits_of(const Mixer& mixer);

/// True if a kind of layer of the model has a mixer that `is_one` accepts. Layers that fields describe have none.
template <class Predicate>
bool has_mixer(const ModelSpec& model, const Predicate& is_one) {
    for (const NamedLayer& kind : model.kinds) {
        if (kind.layer.mixer && is_one(*kind.layer.mixer)) return true;
    }
    return false;
}
/// The same for a mixer with this trait.
[[nodiscard]] bool has_mixer_with(const ModelSpec& model, bool MixerTraits::*trait);

/// True if a kind of layer is counted and nothing else.
[[nodiscard]] bool has_counted_layers(const ModelSpec& model);

/// True if a layer of the model has a feed-forward without experts.
[[nodiscard]] bool has_dense_mlp(const ModelSpec& model);

/// True for mixers that read what the first stage computes for all layers: blocks of weights, inputs of layers, streams.
[[nodiscard]] bool reads_first_stage(const Mixer& mixer);

/// True if layers share blocks of weights, keys and values, or inputs from the embeddings.
[[nodiscard]] bool shares_between_layers(const ModelSpec& model);

/// True if a table of words chooses the experts of this decoder layer.
[[nodiscard]] bool chooses_by_words(const ModelSpec& model, std::int64_t layer);

}  // namespace mgplan
