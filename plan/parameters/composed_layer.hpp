#pragma once
// Layers that are described by parts (plan/model/layer_parts.hpp) and that mgplan computes, and the layouts that they rule out. Parts are
// computed when the typed layer that they state has the same parts.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan {

/// True if a table of words chooses the experts of this decoder layer (part "word_choice").
[[nodiscard]] bool chooses_by_words(const ModelSpec& model, std::int64_t layer);

/// Sets of modules that published recipes of models with these layers recompute; empty where those of other models hold.
[[nodiscard]] std::span<const EnumSet<RecomputeModule>> published_recompute_sets(const ModelSpec& model);

/// Default modules of selective recompute: the first of these sets, or attention's core.
[[nodiscard]] EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model);

/// The layer that a kind of parts states; nothing where a part, a size or their order is none that layers here compute.
[[nodiscard]] std::optional<Layer> computed_layer(const ModelSpec& model, const LayerComposition& composition);

/// The model with its own fields set to what its parts state of attention and feed-forwards, the last kind counting: how flags that hold
/// for all layers describe it. Without attention one head and no positions. Its layers are computed (assertion).
[[nodiscard]] ModelSpec with_stated_fields(const ModelSpec& model);

/// True if mgplan computes every layer of a model with compositions, and all parts outside the layers.
[[nodiscard]] bool is_computed(const ModelSpec& model);

/// Parts of a model's composed layers that are not computed under these sizes, in words: "context parallelism over Mamba-2".
[[nodiscard]] std::vector<std::string> obstacles_of_compositions(const ModelSpec& model, const ParallelSizes& sizes);

}  // namespace mgplan
