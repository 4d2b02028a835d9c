#pragma once
// Layers that are described by parts (plan/model/layer_parts.hpp) and that layers here compute: which parts of which kind, the parameters
// of each as Megatron-core names and divides them, and what stands in a layout's way. A kind of part is computed when it has a row in
// the tables of plan/parameters/computed_parts.hpp and one in model/layers/layer_half.cpp.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan {

/// A layer of one or two halves, each behind a norm of its own or in front of it: a mixer of tokens, a feed-forward.
struct ComposedLayer {
    /// The model with the fields that the parts state, in place of its compositions: for layers that are described by fields.
    ModelSpec fields;
    std::optional<LayerPart> mixer;         ///< "attention", "latent_attention", or one that carries a state
    std::optional<LayerPart> feed_forward;  ///< "mlp", "experts"
};

/// Whether a table of words chooses the experts of this decoder layer (part "word_choice").
[[nodiscard]] bool chooses_by_words(const ModelSpec& model, std::int64_t layer);

/// Sets of modules that published recipes of models with these layers recompute; empty where those of other models hold.
[[nodiscard]] std::span<const EnumSet<RecomputeModule>> published_recompute_sets(const ModelSpec& model);

/// What selective recompute repeats where nothing else is said: the first of these sets, or attention's core.
[[nodiscard]] EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model);

/// Whether the norms that a layer begins with stand in front of its halves and behind them: two for each.
[[nodiscard]] bool norms_in_front_and_behind(const LayerPart& norm);

/// Whether a mixer is recorded as one with a state along the sequence: any but attention that fields describe.
[[nodiscard]] bool carries_state(const LayerPart& mixer);

/// Nothing where a part, or their order, is none that is computed. Layers of one half have one norm, of two halves two.
[[nodiscard]] std::optional<ComposedLayer> computed_layer(const ModelSpec& model, const LayerComposition& composition);
/// One layer of a model; asserts that all of its layers are computed.
[[nodiscard]] ComposedLayer composed_layer(const ModelSpec& model, std::int64_t layer);

/// The model with its own fields set to what its parts state of attention and feed-forwards, the last kind counting: how flags that hold
/// for all layers describe it. Without attention one head and no positions. Its layers are computed (assertion).
[[nodiscard]] ModelSpec with_stated_fields(const ModelSpec& model);

/// Whether layers here compute every layer of a model with compositions, and all that stands beside them.
[[nodiscard]] bool is_computed(const ModelSpec& model);

/// What of a model's composed layers is not computed under these sizes, in words: "context parallelism over Mamba-2".
[[nodiscard]] std::vector<std::string> obstacles_of_compositions(const ModelSpec& model, const ParallelSizes& sizes);

}  // namespace mgplan
