#pragma once
// What the machine of this process is called.

#include <string>

#include "runtime/launch/rank_from_environment.hpp"

namespace mgplan::runtime {

/// Slurm's name of the node for tasks of srun (several slurmd may share a machine's name), else the machine's own.
[[nodiscard]] std::string node_name(const Environment& environment);

}  // namespace mgplan::runtime
