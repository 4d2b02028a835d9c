#pragma once
// --sharding and --optimizer: the optimizer's state and the ranks that hold it. The search does not vary them.

#include "cli/workload_options.hpp"
#include "plan/text/errors.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::cli {

void declare_state_options(Options& options, WorkloadOptions& values);

/// Writes them into a training whose types are set; adds a problem for each contradiction.
void apply_state_options(const WorkloadOptions& values, TrainingSpec& training, Problems& problems);

/// Adds a problem if overlaps, or types of moments, do not suit the sharding; for a training that is complete.
void refuse_state_that_contradicts(const WorkloadOptions& values, const TrainingSpec& training, Problems& problems);

}  // namespace mgplan::cli
