#pragma once
// --sharding and --optimizer: the optimizer's state and the ranks that hold it.

#include "cli/workload_options.hpp"
#include "plan/text/errors.hpp"
#include "plan/training/data_sharding.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::cli {

/// `several_shardings`: --sharding takes a list, all of which a search tries.
void declare_state_options(Options& options, WorkloadOptions& values, bool several_shardings = false);

/// The shardings of such a list after the first, which is the workload's.
[[nodiscard]] std::vector<DataShardingChoice> further_shardings(const std::string& given);

/// Writes them into a training whose types are set; adds a problem for each contradiction.
void apply_state_options(const WorkloadOptions& values, TrainingSpec& training, Problems& problems);

/// Adds a problem if overlaps, or types of moments, do not suit the sharding; for a training that is complete.
void refuse_state_that_contradicts(const WorkloadOptions& values, const TrainingSpec& training, Problems& problems);

}  // namespace mgplan::cli
