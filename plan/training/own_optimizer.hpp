#pragma once
// Optimizers of mgplan's own engine.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Parts of the optimizer that are not computed with tensor parallelism over `tp` ranks, in words, each with a fix; empty if all are.
[[nodiscard]] std::vector<std::string> own_optimizer_obstacles(const ModelSpec& model, const TrainingSpec& training, std::int64_t tp);

}  // namespace mgplan
