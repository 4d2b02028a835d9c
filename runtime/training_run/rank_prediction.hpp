#pragma once
// What a rank will hold and send: the trainer's own code on shapes.

#include <span>

#include "model/training/rank_trainer.hpp"
#include "runtime/measurement/run_values.hpp"

namespace mgplan::runtime {

/// What a step of a run decided from values, which shapes do not have. What else layers decide from values (how many
/// tokens each expert gets) belongs here too.
struct StepFacts {
    model::StepEnd end = model::StepEnd::updated;
};

/// Traces the steps of one rank of the task on the meta device, with the blocks that the CPU's pool would take for it.
[[nodiscard]] RankUse predict_rank(const model::TrainingTask& task, int rank, std::span<const StepFacts> steps);

}  // namespace mgplan::runtime
