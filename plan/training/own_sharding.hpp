#pragma once
// What mgplan's own engine trains with sharded gradients and parameters, and what of Megatron-FSDP's choices it does not.

#include <string>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// In words, each with a way out; empty where nothing stands against it. `cuda_graphs`: whether the layout has any.
[[nodiscard]] std::vector<std::string> own_sharding_obstacles(const ModelSpec& model, const TrainingSpec& training, bool cuda_graphs);

}  // namespace mgplan
