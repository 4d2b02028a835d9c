#pragma once
// Forward passes alone: log-probabilities of the actor and its reference, values of a critic, rewards.

#include <cstdint>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"

namespace mgplan::planner {

/// Seconds of the forward passes of `sequences` sequences (any number, also a fraction of a microbatch for each rank) under a layout of the
/// workload: all microbatches one after the other on the slowest stage, and the filling of the pipeline.
[[nodiscard]] double forward_seconds(const Workload& workload, const Layout& layout, double sequences);

}  // namespace mgplan::planner
