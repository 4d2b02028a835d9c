#pragma once
// Name of this process's machine.

#include <string>
#include <vector>

#include "runtime/launch/rank_from_environment.hpp"

namespace mgplan::runtime {

/// Slurm's name of the node for tasks of srun (several slurmd may share a machine's name), else the machine's own.
[[nodiscard]] std::string node_name(const Environment& environment);

/// The number of each rank's machine, counted in the order in which they appear. `names`: of all ranks.
[[nodiscard]] std::vector<int> node_numbers(const std::vector<std::string>& names);

}  // namespace mgplan::runtime
