#pragma once
// What is not predicted beside weights that data-parallel neighbours hold in parts (plan/training/weight_shards.hpp).

#include <string_view>

#include "plan/layout/megatron_offload.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// What of a job of engine megatron whose weights are held in parts is not predicted, in words; "" where all is. `training` need not say
/// the parts. `beside`: beside_offload() of the layout, or what is known of it.
[[nodiscard]] std::string_view unpredicted_beside_shards(const TrainingSpec& training, const BesideOffload& beside);

}  // namespace mgplan
