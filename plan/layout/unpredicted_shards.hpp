#pragma once
// Features that mgplan does not predict with weights sharded over data-parallel neighbours (plan/training/weight_shards.hpp).

#include <string_view>

#include "plan/layout/megatron_offload.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Names the feature of a job of engine megatron with sharded weights that is not predicted; "" if all are. `training` need not have the
/// shards set. `beside`: beside_offload() of the layout, or its known part.
[[nodiscard]] std::string_view unpredicted_beside_shards(const TrainingSpec& training, const BesideOffload& beside);

}  // namespace mgplan
