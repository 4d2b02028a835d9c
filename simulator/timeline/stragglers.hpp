#pragma once
// Ranks that compute more slowly than the others, and the resulting slowdown of their pipelines.

#include <cstdint>
#include <vector>

#include "plan/layout/rank_groups.hpp"

namespace mgplan::simulator {

/// Computation on a global rank takes `factor` times as long.
struct Straggler {
    std::int64_t rank = 0;
    double factor = 1;
};

/// Factors on the compute time of each stage of a pipeline, by pipeline rank: one entry per data-parallel replica with a straggler
/// (replicas without one wait for these when gradients are reduced); equal entries appear once.
///
/// The ranks of a stage in one replica (tp, cp) meet in collectives in every layer and run at the pace of the slowest: the largest factor
/// counts. If expert-parallel groups span replicas (`ep` > 1), their exchanges couple the replicas in every layer: all replicas are merged
/// into one, with the largest factor of each stage.
[[nodiscard]] std::vector<std::vector<double>> stage_slowdowns(const ParallelSizes& sizes, const std::vector<Straggler>& stragglers);

}  // namespace mgplan::simulator
