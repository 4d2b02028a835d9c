#pragma once
// The layout that `plan --compare` compares with the first plan.

#include <string>

#include "cli/command.hpp"
#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"

namespace mgplan::cli {

/// `given` is a plan written by --save-plan, a file of Megatron-LM arguments, or a layout in words (plan/layout/layout_words.hpp). Of a
/// file only the layout is used, for the job that is searched; a file about another job causes a warning on console.err. Words may leave
/// out fields that `space` pins or every row of the search's table has: its CUDA graphs, order of the axes, group size, layers per stage,
/// sequence parallelism, and how often full recompute repeats. Throws ConfigError, each problem prefixed by "--compare": not readable,
/// not understood, or a rule of the job that the layout breaks.
[[nodiscard]] Layout read_compared_layout(const std::string& given, const Workload& workload, const planner::SearchSpace& space,
                                          Console& console);

}  // namespace mgplan::cli
