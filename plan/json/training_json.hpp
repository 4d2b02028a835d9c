#pragma once
// TrainingSpec, BatchSpec and BatchSchedule as JSON, the parts "training", "batch" and "batch_schedule" of a plan.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/training/batch_schedule.hpp"
#include "plan/training/batch_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

[[nodiscard]] nlohmann::ordered_json training_to_json(const TrainingSpec& training);
[[nodiscard]] nlohmann::ordered_json batch_to_json(const BatchSpec& batch);
/// Writes only the fields that are set.
[[nodiscard]] nlohmann::ordered_json batch_schedule_to_json(const BatchSchedule& schedule);

/// All throw ConfigError naming `where` and each missing, unknown or ill-typed field and each value out of range.
[[nodiscard]] TrainingSpec training_from_json(const nlohmann::ordered_json& json, const std::string& where);
[[nodiscard]] BatchSpec batch_from_json(const nlohmann::ordered_json& json, const std::string& where);
/// Does not check that the stages suit each other: batch_stages() does.
[[nodiscard]] BatchSchedule batch_schedule_from_json(const nlohmann::ordered_json& json, const std::string& where);

}  // namespace mgplan
