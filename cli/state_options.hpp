#pragma once
// --sharding and --optimizer: what the optimizer keeps and which ranks keep it. The search does not vary them.

#include "cli/workload_options.hpp"
#include "plan/text/errors.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::cli {

void declare_state_options(Options& options, WorkloadOptions& values);

/// Writes them into a training whose types are set; adds a problem for what contradicts itself.
void apply_state_options(const WorkloadOptions& values, TrainingSpec& training, Problems& problems);

/// Adds a problem where overlaps, or types of moments, do not go with what is divided; for a training that is complete.
void refuse_state_that_contradicts(const WorkloadOptions& values, const TrainingSpec& training, Problems& problems);

}  // namespace mgplan::cli
