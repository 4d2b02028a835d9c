#pragma once
// A model's JSON of version 2: each kind of layer with the members of its typed value.
// {"version": 2, …, "kinds": [{"mixer": {"kind": "attention", "heads": 32, …}, "feed_forward": {…}}, …], "layers": [[kind, count], …]}

#include <string>

#include "plan/layers/layer.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan {

/// Adapters of a model that fields or parts describe.
[[nodiscard]] nlohmann::ordered_json adapters_to_json(const Adapters& adapters);
[[nodiscard]] Adapters adapters_from_json(const nlohmann::ordered_json& json, const std::string& where, Problems& problems);

/// Members at their defaults are left out.
[[nodiscard]] nlohmann::ordered_json layers_to_json(const Model& model);

/// Reads it; throws ConfigError with all problems.
[[nodiscard]] Model layers_from_json(const nlohmann::ordered_json& json, const std::string& where);

/// The same as a ModelSpec. Throws ConfigError for layers that no ModelSpec describes, naming the first such value.
[[nodiscard]] ModelSpec spec_from_layers_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
