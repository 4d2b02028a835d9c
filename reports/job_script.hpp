#pragma once
// The script that starts a job, for people to read and for an engine to run.

#include <string>
#include <vector>

#include "jobs/job.hpp"

namespace mgplan::reports {

/// A bash script with one argument, the number of the attempt (1 without). For Slurm it is a batch script. Every path and
/// value is quoted for the shell, whatever it holds. Logs go to FOLDER/attempt-N/: job.log what engine and script say (Slurm),
/// rank-00000.log … what each rank says. Its exit status is the engine's.
[[nodiscard]] std::string job_script(const jobs::Job& job);

/// What starts the script: {"bash", script, "1"} or {"sbatch", "--parsable", script, "1"}.
[[nodiscard]] std::vector<std::string> start_command(const jobs::Job& job, int attempt);

/// Where torchrun is to run on several nodes: the command of each node, which nobody here can start.
[[nodiscard]] bool needs_a_start_on_each_node(const jobs::Job& job);

}  // namespace mgplan::reports
