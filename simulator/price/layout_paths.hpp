#pragma once
// Links used by the groups of a layout.

#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/workload.hpp"
#include "simulator/compute/calibration.hpp"
#include "simulator/price/shard.hpp"

namespace mgplan::simulator {

[[nodiscard]] LayoutPaths paths_of(const ParallelSizes& sizes, const ClusterSpec& cluster, const Calibration& calibration);

/// Adds the paths inside and across `instances` instances of the distributed optimizer.
void add_instances(LayoutPaths& paths, const ParallelSizes& sizes, std::int64_t instances, const ClusterSpec& cluster,
                   const Calibration& calibration);

/// Adds the paths between ranks that hold the parts of a weight (inner), and between those that hold the same part (outer): neighbours
/// along dp, where dp and edp are multiples of the number of parts. The outer path includes context parallelism, whose ranks are closer
/// together here than those of the parts, but farther apart in Megatron-LM.
void add_weight_shards(LayoutPaths& paths, const ParallelSizes& sizes, const WeightShards& shards, const ClusterSpec& cluster,
                       const Calibration& calibration);

}  // namespace mgplan::simulator
