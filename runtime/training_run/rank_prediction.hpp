#pragma once
// What a rank will hold and send: the trainer's own code on shapes.

#include <span>

#include "model/device/kernel_traits.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/measurement/run_values.hpp"

namespace mgplan::runtime {

/// What a step of a run decided from values, which shapes do not have. What routers decided stands in a RoutingLog.
struct StepFacts {
    model::StepEnd end = model::StepEnd::updated;
};

/// Traces the steps of one rank of the task on the meta device, with the scratch of a device of these traits and the blocks
/// that its pool would take.
/// `routing`: the run's own counts; without them mixtures are taken to be balanced.
[[nodiscard]] RankUse predict_rank(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for,
                                   std::span<const StepFacts> steps, model::RoutingLog* routing = nullptr);

}  // namespace mgplan::runtime
