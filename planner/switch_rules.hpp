#pragma once
// Rules for a layout's switches: dispatchers, overlaps, dtypes of gradients and moments.

#include <span>
#include <string>
#include <vector>

#include "planner/constraints.hpp"

namespace mgplan::planner {

/// The rules of Level::switches; first_broken() and rules() include them.
[[nodiscard]] std::span<const Rule> switch_rules();

/// True if DeepEP as it is published runs on the cluster's NVLink domains: of 2 to 8 GPUs.
[[nodiscard]] bool deep_ep_knows(const ClusterSpec& cluster);

/// Reasons why no layout of the job can use this dispatcher, whatever its sizes: the dtype of tokens, the GPUs, other flags, or these CUDA
/// graphs. Each has a way out; empty if there is no obstacle, and for models without experts.
[[nodiscard]] std::vector<std::string> dispatcher_problems(const Workload& workload, TokenDispatcher dispatcher, Engine engine,
                                                           EnumSet<CudaGraphScope> cuda_graphs);

}  // namespace mgplan::planner
