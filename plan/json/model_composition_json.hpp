#pragma once
// Structure of a model's layers in mgplan's JSON: order and norms, multipliers, layers by kind and their parts.

#include "plan/model/model_spec.hpp"
#include "plan/parts/model_parts.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan {

/// Adds the fields that differ from their defaults, kinds of layers as parts, counted ones as their tensors.
void composition_to_json(const ModelSpec& model, nlohmann::ordered_json& json);
/// Reads what composition_to_json() writes; the parts are for set_layers(), when all fields are read.
[[nodiscard]] ModelParts composition_from_json(JsonReader& reader, ModelSpec& model);

/// The kinds of layers as runs of equal ones: [[kind, layers], …].
[[nodiscard]] nlohmann::ordered_json runs_to_json(const std::vector<std::uint16_t>& kinds);
[[nodiscard]] std::vector<std::uint16_t> runs_from_json(const nlohmann::ordered_json& json, const std::string& where, Problems& problems);

}  // namespace mgplan
