#pragma once
// The rank of a process in a run, and its way to find the others.

#include <chrono>
#include <cstdint>
#include <optional>

#include "runtime/launch/rank_from_environment.hpp"
#include "runtime/rendezvous/rendezvous.hpp"

namespace mgplan::cli {

/// The user's options about this process's rank.
struct RankChoice {
    std::optional<std::int64_t> rank;  ///< this one alone
    bool ranks_in_process = false;
    bool gpu = false;
};

/// Returns this process's rank among those of the plan; nothing if it is all of them, or one alone. Throws ConfigError if a launcher
/// started another number, if the user's options contradict it, or if refuse_without_mpi() does.
[[nodiscard]] std::optional<runtime::LaunchedRank> launched_rank(const RankChoice& choice, std::int64_t world);

/// CPU ranks that are processes communicate over MPI. Throws ConfigError if several were started without it: by torchrun or a program
/// that sets its variables, and by no launcher of MPI.
void refuse_without_mpi(const runtime::LaunchedRank& launched);

/// Returns the options of the meeting of processes with a GPU each. Throws ConfigError for variables that are missing or wrong.
[[nodiscard]] runtime::RendezvousOptions meeting_of(const runtime::LaunchedRank& launched, std::chrono::milliseconds deadline);

}  // namespace mgplan::cli
