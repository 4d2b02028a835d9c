#pragma once
// The global ranks of a pipeline stage, in any order of the axes.

#include <cstdint>

#include "plan/layout/rank_groups.hpp"

namespace mgplan {

/// The lowest global rank of a pipeline stage in [0, pp). For sizes without problems(); dense and expert grid have the same stages.
[[nodiscard]] std::int64_t first_rank_of_stage(const ParallelSizes& sizes, std::int64_t stage);

/// The pipeline stage of a global rank in [0, world).
[[nodiscard]] std::int64_t stage_of_rank(const ParallelSizes& sizes, std::int64_t rank);

}  // namespace mgplan
