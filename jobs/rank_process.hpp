#pragma once
// The process that an engine starts for each rank: it checks that the rank is the planned one, runs its command with a log of its own,
// and records a failure.

#include <string>
#include <vector>

#include "runtime/launch/rank_from_environment.hpp"

namespace mgplan::jobs {

/// FOLDER/rank-00003.log
[[nodiscard]] std::string rank_log(const std::string& logs, int rank);

struct RankProcessOptions {
    int world = 1;
    int ranks_per_node = 1;
    std::string logs;
    std::vector<std::string> command;
    bool torch_variables = false;
};

/// Returns the contradiction between the launcher's variables and the plan, in one sentence: no launcher at all, another world (16 jobs
/// of one rank in place of one of 16), other ranks on this machine than planned. Empty if all is as planned.
[[nodiscard]] std::string start_problem(const RankProcessOptions& options, const runtime::LaunchedRank& launched,
                                        const runtime::Environment& environment);

/// Runs the rank's command to its end and returns its exit code, 2 if the rank is not the planned one. The command's output
/// goes to rank_log(). SIGTERM, SIGINT and SIGHUP are passed on, two seconds later SIGKILL; the command dies with this process,
/// and this process is stopped when the one that started it dies. The first rank of a job to fail writes first_failure; one that
/// was stopped from outside does not. Throws ConfigError and RunError if the command cannot begin.
[[nodiscard]] int run_rank_process(const RankProcessOptions& options);

/// For a command that run_rank_process() started and that is about to end all ranks at once (MPI_Abort): the engine may kill the
/// process that watches it before that can report the first failure, so the command reports it itself. Does nothing elsewhere.
void leave_word_of_own_failure(const runtime::LaunchedRank& launched, const runtime::Environment& environment, const std::string& what,
                               int code);

}  // namespace mgplan::jobs
