#pragma once
// Sharded gradients and parameters of mgplan's own engine, and the options of Megatron-FSDP that it does not support.

#include <string>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Reasons why the engine does not run the sharding, in words, each with a fix; empty if it does. `cuda_graphs`: true if the layout has
/// any.
[[nodiscard]] std::vector<std::string> own_sharding_obstacles(const ModelSpec& model, const TrainingSpec& training, bool cuda_graphs);

}  // namespace mgplan
