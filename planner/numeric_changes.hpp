#pragma once
// Changes of a job that make a plan faster or smaller and change the numbers that a training computes: a search never makes them.

#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "planner/planned_layout.hpp"
#include "simulator/prediction.hpp"

namespace mgplan::planner {

/// Precisions of 8 bits that suit the GPU, and bf16 gradients, each alone on the layout as it is (a search with it may find a better one):
/// those that are legal with engine megatron, fit, and make the iteration at least 3 % shorter or the fullest rank at least 3 % smaller
/// than `usual`.
[[nodiscard]] std::vector<JobChange> numeric_changes(const Workload& workload, const Layout& layout, const simulator::Prediction& usual);

}  // namespace mgplan::planner
