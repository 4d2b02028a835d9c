#pragma once
// What a training takes over the stages of its batch, for people and programs.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/training/batch_schedule.hpp"

namespace mgplan::reports {

/// "12,000 steps, 25.2 billion tokens, 3.2 days", then a line for each of the stages, of many for the first and the last.
[[nodiscard]] std::string training_text(const TrainingCourse& course);

/// {"steps","samples","tokens","seconds","stages":[{"from_samples","global_batch","num_microbatches","steps","samples","tokens",
/// "iteration_seconds","seconds"}]}: steps, samples, tokens and seconds are null where nothing ends the last stage;
/// num_microbatches and seconds of a stage that was run before, on other GPUs, which `seconds` leaves out.
[[nodiscard]] nlohmann::ordered_json training_to_json(const TrainingCourse& course);

}  // namespace mgplan::reports
