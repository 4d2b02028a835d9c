#pragma once
// How the layers of a model are put together, in mgplan's JSON: order and norms, multipliers, layers by kind and their parts.

#include "plan/model/model_spec.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan {

/// Adds the fields that differ from their defaults.
void composition_to_json(const ModelSpec& model, nlohmann::ordered_json& json);
/// Reads what composition_to_json() writes.
void composition_from_json(JsonReader& reader, ModelSpec& model);

}  // namespace mgplan
