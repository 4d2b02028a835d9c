#pragma once
// Choices of a plan for Megatron-LM that change its speed alone and that mgplan's own runtime lacks.

#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace mgplan::cli {

/// Replaces such choices of a plan for engine megatron, which `run` would refuse: token dispatchers by the all-to-all, CUDA graphs that
/// the runtime does not capture by none. The trained numbers stay the same. Returns a sentence for each; empty for engine mgplan.
[[nodiscard]] std::vector<std::string> replace_choices_of_megatron(Plan& plan);

}  // namespace mgplan::cli
