#pragma once
// The optimizer in host memory as a change of a job.

#include <optional>

#include "plan/layout/layout.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::planner {

/// The same training with --offload optimizer and the settings that Megatron-LM requires with it (arguments.py, validate_args). Nothing
/// for a job that offloads anything, and for engine megatron without the distributed optimizer.
[[nodiscard]] std::optional<TrainingSpec> with_optimizer_on_host(TrainingSpec training, Engine engine);

}  // namespace mgplan::planner
