#pragma once
// What mgplan's own engine leaves in the host's memory, and what of --offload it does not.

#include <string>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// In words, each with a way out; empty where nothing stands against it. `cuda_graphs`, `full_recompute`: whether the layout has them.
[[nodiscard]] std::vector<std::string> own_offload_obstacles(const ModelSpec& model, const TrainingSpec& training, bool cuda_graphs,
                                                             bool full_recompute);

}  // namespace mgplan
