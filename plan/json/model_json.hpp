#pragma once
// ModelSpec as mgplan's own JSON: written by `models show` and inside plans, read back identically.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/model/model_spec.hpp"

namespace mgplan {

[[nodiscard]] nlohmann::ordered_json model_to_json(const ModelSpec& model);

/// Throws ConfigError naming `where` and each missing, unknown or ill-typed field; the result has been validated.
[[nodiscard]] ModelSpec model_from_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
