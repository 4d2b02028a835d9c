#pragma once
// The links that the groups of a layout run over.

#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/price/shard.hpp"

namespace mgplan::simulator {

[[nodiscard]] LayoutPaths paths_of(const ParallelSizes& sizes, const ClusterSpec& cluster, const Calibration& calibration);

/// Adds those inside and across so many instances of the distributed optimizer.
void add_instances(LayoutPaths& paths, const ParallelSizes& sizes, std::int64_t instances, const ClusterSpec& cluster,
                   const Calibration& calibration);

/// Adds those of ranks that hold the parts of a weight (inner), and of those that hold the same part (outer): neighbours along dp, which dp
/// and edp are multiples of. Context parallelism is beside them, where Megatron-LM has it around them.
void add_weight_shards(LayoutPaths& paths, const ParallelSizes& sizes, const WeightShards& shards, const ClusterSpec& cluster,
                       const Calibration& calibration);

}  // namespace mgplan::simulator
