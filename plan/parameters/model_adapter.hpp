#pragma once
// A model as typed layers (plan/layers/layer.hpp) from a ModelSpec, whether its fields or its kinds describe its layers, and back.

#include <optional>
#include <string>
#include <vector>

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/megatron_switches.hpp"

namespace mgplan {

/// The model has passed validate(). If one of its kinds is counted, all layers are counted. `switches` say which layers stay in bf16. Equal
/// layers are one kind, in the order of their first layer.
[[nodiscard]] Model typed_model(const ModelSpec& model, const MegatronSwitches& switches = {});

/// A layer of each kind of the model as its first one, or the first layer that fields describe.
[[nodiscard]] std::vector<Layer> typed_kinds(const ModelSpec& model);
/// The same with the ends of the model, without its list of layers.
[[nodiscard]] Model typed_ends(const ModelSpec& model);

/// One decoder layer by its number; the model's number of layers and more: that of multi-token prediction. It is not counted (assertion).
[[nodiscard]] Layer typed_layer(const ModelSpec& model, std::int64_t layer);

/// A kind of layer (NamedLayer::layer) as decoder layer `number`, with what the model's fields say of all layers: the form of norms,
/// residual path, rotary positions, scores, routing. Not counted (assertion).
[[nodiscard]] Layer with_fields(const ModelSpec& model, const Layer& kind, std::int64_t number);
/// The inverse: the kind of a layer.
[[nodiscard]] Layer without_fields(const Layer& layer);

/// True if a mixer is recorded as one with a state along the sequence: any but attention that fields describe.
[[nodiscard]] bool carries_state(const Mixer& mixer);

/// The ModelSpec whose fields describe a model's layers; nothing where a layer is not softmax attention and a feed-forward. A value that
/// differs between layers, where fields say one for all, is lost: typed_model() of the result then differs. Layers are not empty.
[[nodiscard]] std::optional<ModelSpec> spec_of_fields(const Model& model);

/// The same network described by fields where its layers are described by kinds and fields can; else the model itself. The model has passed
/// validate().
[[nodiscard]] ModelSpec by_fields_if_possible(ModelSpec model);

/// The ModelSpec whose kinds describe a model's layers, under the names of their halves. The same holds of values for all layers.
[[nodiscard]] ModelSpec spec_of_kinds(const Model& model);

/// "mamba2+moe", by its halves.
[[nodiscard]] std::string name_of_halves(const Layer& layer);

/// The model with its own fields set to what its kinds state of attention and feed-forwards, the last kind counting: how flags that hold
/// for all layers describe it. Without attention one head and no positions. Its layers are computed (assertion).
[[nodiscard]] ModelSpec with_stated_fields(const ModelSpec& model);

}  // namespace mgplan
