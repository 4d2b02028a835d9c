#pragma once
// The number of ranks that a launch starts, from the words of its launcher and the variables around it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/megatron/shell_arithmetic.hpp"

namespace mgplan::formats {

struct LaunchWorld {
    std::optional<std::int64_t> ranks;
    std::string source;  ///< "torchrun: 2 nodes of 8"
};

/// The ranks that a launcher starts: torchrun, deepspeed, accelerate, mpirun, srun (with Slurm's variables where its words give no number),
/// ms-swift (NPROC_PER_NODE and NNODES), slime (--actor-num-nodes). `launcher`: the words in front of the `program`, `training`: those
/// after it. torchrun and its like start theirs in each task of srun or mpirun. No ranks where a number is not stated or not known, and
/// where srun starts one task on a node, which mostly starts others.
[[nodiscard]] LaunchWorld launch_world(const std::vector<std::string>& launcher, const std::string& program,
                                       const std::vector<std::string>& training, const VariableLookup& lookup);

}  // namespace mgplan::formats
