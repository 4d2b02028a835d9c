#pragma once
// The script that starts a job.

#include <string>
#include <vector>

#include "jobs/job.hpp"

namespace mgplan::reports {

/// A bash script with one argument, the number of the attempt (default 1). For Slurm it is a batch script. Every path and value is quoted
/// for the shell. Logs go to FOLDER/attempt-N/: job.log holds output of engine and script (Slurm), rank-00000.log … the output of each
/// rank. The exit status is the engine's.
[[nodiscard]] std::string job_script(const jobs::Job& job);

/// The command that starts the script: {"bash", script, "1"} or {"sbatch", "--parsable", script, "1"}.
[[nodiscard]] std::vector<std::string> start_command(const jobs::Job& job, int attempt);

/// True for torchrun on several nodes: the user must run the command on each node.
[[nodiscard]] bool needs_a_start_on_each_node(const jobs::Job& job);

}  // namespace mgplan::reports
