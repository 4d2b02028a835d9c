#pragma once
// Layers that are described by parts (plan/model/layer_parts.hpp) and that mgplan computes, and the layouts that they rule out. A kind of
// part is computed when it has a row in plan/parameters/computed_parts.cpp and one in model/layers/layer_half.cpp. Parts are computed when
// the typed layer that they state has the same parts.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan {

/// A layer of one or two halves, each with a norm of its own in front of it or after it: a mixer of tokens, a feed-forward.
struct ComposedLayer {
    /// The model with the fields that the parts state, in place of its compositions: for layers that are described by fields.
    ModelSpec fields;
    std::optional<LayerPart> mixer;         ///< "attention", "latent_attention", or one that carries a state
    std::optional<LayerPart> feed_forward;  ///< "mlp", "experts"
};

/// True if a table of words chooses the experts of this decoder layer (part "word_choice").
[[nodiscard]] bool chooses_by_words(const ModelSpec& model, std::int64_t layer);

/// Sets of modules that published recipes of models with these layers recompute; empty where those of other models hold.
[[nodiscard]] std::span<const EnumSet<RecomputeModule>> published_recompute_sets(const ModelSpec& model);

/// Default modules of selective recompute: the first of these sets, or attention's core.
[[nodiscard]] EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model);

/// True if this part has norms in front of the layer's halves and after them: two for each.
[[nodiscard]] bool norms_in_front_and_behind(const LayerPart& norm);

/// Nothing where a part, a size or their order is none that layers here compute. Layers of one half have one norm, of two halves two.
[[nodiscard]] std::optional<ComposedLayer> computed_layer(const ModelSpec& model, const LayerComposition& composition);
/// Composes one kind, or one layer, of a model whose layers are all known to be computed; nothing is checked again.
[[nodiscard]] ComposedLayer composed_layer(const ModelSpec& model, const LayerComposition& composition);
[[nodiscard]] ComposedLayer composed_layer(const ModelSpec& model, std::int64_t layer);

/// The model with its own fields set to what its parts state of attention and feed-forwards, the last kind counting: how flags that hold
/// for all layers describe it. Without attention one head and no positions. Its layers are computed (assertion).
[[nodiscard]] ModelSpec with_stated_fields(const ModelSpec& model);

/// True if mgplan computes every layer of a model with compositions, and all parts outside the layers.
[[nodiscard]] bool is_computed(const ModelSpec& model);

/// Parts of a model's composed layers that are not computed under these sizes, in words: "context parallelism over Mamba-2".
[[nodiscard]] std::vector<std::string> obstacles_of_compositions(const ModelSpec& model, const ParallelSizes& sizes);

}  // namespace mgplan
