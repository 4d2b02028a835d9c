#pragma once
// A model as typed layers (plan/layers/layer.hpp) from a ModelSpec, whether fields or parts describe its layers, and back.

#include <optional>

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/megatron_switches.hpp"

namespace mgplan {

/// The model has passed validate(). A model of parts that layers here do not compute has counted layers. `switches` say which layers stay
/// in bf16. Equal layers are one kind, in the order of their first layer.
[[nodiscard]] Model typed_model(const ModelSpec& model, const MegatronSwitches& switches = {});

/// The same without its list of layers: its ends, and a layer of each kind of parts or one that fields describe.
[[nodiscard]] Model typed_ends(const ModelSpec& model);

/// One decoder layer by its number; the model's number of layers and more: that of multi-token prediction. Layers here compute it
/// (assertion).
[[nodiscard]] Layer typed_layer(const ModelSpec& model, std::int64_t layer);

/// True if a mixer is recorded as one with a state along the sequence: any but attention that fields describe.
[[nodiscard]] bool carries_state(const Mixer& mixer);

/// The layer that parts state, as decoder layer `number` of its model, whether or not layers here compute all of them; nothing where no
/// layer follows. The second form asserts that one does.
[[nodiscard]] std::optional<Layer> stated_layer(const ModelSpec& model, const LayerComposition& composition, std::int64_t number);
[[nodiscard]] Layer typed_layer(const ModelSpec& model, const LayerComposition& composition, std::int64_t number);

/// The ModelSpec whose fields describe a model's layers; nothing where a layer is not softmax attention and a feed-forward. A value that
/// differs between layers, where fields say one for all, is lost: typed_model() of the result then differs. Layers are not empty.
[[nodiscard]] std::optional<ModelSpec> spec_of_fields(const Model& model);

/// The same network described by fields where its layers are described by parts and fields can; else the model itself. The model has passed
/// validate().
[[nodiscard]] ModelSpec by_fields_if_possible(ModelSpec model);

/// The ModelSpec whose parts describe a model's layers. The same holds of values for which parts have no size.
[[nodiscard]] ModelSpec spec_of_parts(const Model& model);

/// The parts of a typed layer, and those outside the layers of a model: what these kinds of layers read, and the final norm.
[[nodiscard]] LayerComposition composition_of(const Layer& layer, std::int64_t hidden);
[[nodiscard]] std::vector<LayerPart> parts_beside(const std::vector<Layer>& kinds, const Norm& final_norm, const ModelSpec& spec);

/// The part that mixes a model's streams around `halves` halves of a layer.
[[nodiscard]] LayerPart stream_maps_part(const HyperConnections& streams, std::int64_t halves);

}  // namespace mgplan
