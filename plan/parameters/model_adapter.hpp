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

/// The ModelSpec whose fields describe a model's layers; nothing where a layer is not softmax attention and a feed-forward. A value that
/// differs between layers, where fields say one for all, is lost: typed_model() of the result then differs. Layers are not empty.
[[nodiscard]] std::optional<ModelSpec> spec_of_fields(const Model& model);

/// The ModelSpec whose parts describe a model's layers. The same holds of values for which parts have no size.
[[nodiscard]] ModelSpec spec_of_parts(const Model& model);

}  // namespace mgplan
