#pragma once
// Which kinds of layers mgplan computes, the layouts that they rule out, and the modules that their recipes recompute.

#include <span>
#include <string>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"

namespace mgplan {

/// Sets of modules that published recipes of models with these layers recompute; empty where those of other models hold.
[[nodiscard]] std::span<const EnumSet<RecomputeModule>> published_recompute_sets(const ModelSpec& model);

/// Default modules of selective recompute: the first of these sets, or attention's core.
[[nodiscard]] EnumSet<RecomputeModule> usual_recompute_modules(const ModelSpec& model);

/// True if layers here compute a kind of layer of the model: it is not counted, and its sizes are those that its halves can have.
[[nodiscard]] bool is_computed(const ModelSpec& model, const NamedLayer& kind);

/// True if layers here compute all kinds of layers of the model, together and whatever follows them.
[[nodiscard]] bool has_computed_kinds(const ModelSpec& model);

/// True if mgplan computes every layer of a model, and all tensors outside the layers.
[[nodiscard]] bool is_computed(const ModelSpec& model);

/// Obstacles to computing a model's kinds of layers under these sizes, in words: "context parallelism over Mamba-2".
[[nodiscard]] std::vector<std::string> obstacles_of_kinds(const ModelSpec& model, const ParallelSizes& sizes);

}  // namespace mgplan
