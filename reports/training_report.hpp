#pragma once
// Time of a training over the stages of its batch size, as text and JSON.

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "plan/training/batch_schedule.hpp"

namespace mgplan::reports {

/// "12,000 steps, 25.2 billion tokens, 3.2 days", then a line for each of the stages; of many stages only for the first and the last.
[[nodiscard]] std::string training_text(const TrainingCourse& course);

/// {"steps","samples","tokens","seconds","stages":[{"from_samples","global_batch","num_microbatches","steps","samples","tokens",
/// "iteration_seconds","seconds"}]}: steps, samples, tokens and seconds are null if nothing ends the last stage; num_microbatches and
/// seconds are null in a stage that was already run, on other GPUs, which the total `seconds` leaves out.
[[nodiscard]] nlohmann::ordered_json training_to_json(const TrainingCourse& course);

}  // namespace mgplan::reports
