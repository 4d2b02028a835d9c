#pragma once
// Features that mgplan does not predict together with mixed residual streams (ModelSpec::hyper_connections).

#include <string_view>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Names the feature of a job with such streams that is not predicted; "" if all are. `model` need not have the streams yet.
[[nodiscard]] std::string_view unpredicted_beside_streams(const ModelSpec& model, const TrainingSpec& training,
                                                          EnumSet<CudaGraphScope> graphs);

}  // namespace mgplan
