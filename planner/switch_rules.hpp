#pragma once
// The rules of what a layout switches on beside its sizes: dispatchers, overlaps, types of gradients and moments.

#include <span>
#include <string>
#include <vector>

#include "planner/constraints.hpp"

namespace mgplan::planner {

/// Those of Level::switches; first_broken() and rules() know them too.
[[nodiscard]] std::span<const Rule> switch_rules();

/// Why no layout of the job dispatches tokens so, whatever its sizes are: its type of tokens, its GPUs, other flags, or these CUDA graphs.
/// Each with a way out; empty where nothing stands against it, and for models without experts.
[[nodiscard]] std::vector<std::string> dispatcher_problems(const Workload& workload, TokenDispatcher dispatcher, Engine engine,
                                                           EnumSet<CudaGraphScope> cuda_graphs);

}  // namespace mgplan::planner
