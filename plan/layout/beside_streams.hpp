#pragma once
// What is not predicted beside residual streams that maps mix (ModelSpec::hyper_connections).

#include <string_view>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// What of a job whose layers have such streams is not predicted, in words; "" where all is. `model` need not have them yet.
[[nodiscard]] std::string_view unpredicted_beside_streams(const ModelSpec& model, const TrainingSpec& training,
                                                          EnumSet<CudaGraphScope> graphs);

}  // namespace mgplan
