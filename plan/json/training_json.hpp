#pragma once
// TrainingSpec and BatchSpec as JSON, the parts "training" and "batch" of a plan.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/training/batch_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

[[nodiscard]] nlohmann::ordered_json training_to_json(const TrainingSpec& training);
[[nodiscard]] nlohmann::ordered_json batch_to_json(const BatchSpec& batch);

/// All throw ConfigError naming `where` and each missing, unknown or ill-typed field and each value out of range.
[[nodiscard]] TrainingSpec training_from_json(const nlohmann::ordered_json& json, const std::string& where);
[[nodiscard]] BatchSpec batch_from_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
