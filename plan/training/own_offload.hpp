#pragma once
// State that mgplan's own engine keeps in the host's memory, and the parts of --offload that it does not support.

#include <string>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Reasons why the engine does not run the offload, in words, each with a fix; empty if it does. `cuda_graphs`, `full_recompute`: true if
/// the layout has them.
[[nodiscard]] std::vector<std::string> own_offload_obstacles(const ModelSpec& model, const TrainingSpec& training, bool cuda_graphs,
                                                             bool full_recompute);

}  // namespace mgplan
