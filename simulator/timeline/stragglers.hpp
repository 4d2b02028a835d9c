#pragma once
// Ranks that compute more slowly than the others, and what they do to their pipeline.

#include <cstdint>
#include <vector>

#include "plan/layout/rank_groups.hpp"

namespace mgplan::simulator {

/// Computation on a global rank takes `factor` times as long.
struct Straggler {
    std::int64_t rank = 0;
    double factor = 1;
};

/// How much longer each stage of a pipeline computes, by pipeline rank: one entry for every data-parallel replica that has a
/// straggler (replicas without one wait for these when gradients are reduced), equal ones once.
///
/// The ranks of a stage in one replica (tp, cp) meet in collectives in every layer and go at the pace of the slowest: the largest
/// factor counts. Where expert-parallel groups reach over replicas (`ep` > 1), their exchanges couple the replicas in every layer
/// too: they are taken as one, again with the largest factor of each stage.
[[nodiscard]] std::vector<std::vector<double>> stage_slowdowns(const ParallelSizes& sizes, const std::vector<Straggler>& stragglers);

}  // namespace mgplan::simulator
