#pragma once
// Which rank of a run a process is, and how it finds the others.

#include <chrono>
#include <cstdint>
#include <optional>

#include "runtime/launch/rank_from_environment.hpp"
#include "runtime/rendezvous/rendezvous.hpp"

namespace mgplan::cli {

/// What the user said of it.
struct RankChoice {
    std::optional<std::int64_t> rank;  ///< this one alone
    bool ranks_in_process = false;
    bool gpu = false;
};

/// This process's rank among as many as the plan has; nothing where it is all of them, or one alone. Throws ConfigError where a launcher
/// started another number, what the user said contradicts it, or refuse_without_mpi() does.
[[nodiscard]] std::optional<runtime::LaunchedRank> launched_rank(const RankChoice& choice, std::int64_t world);

/// MPI carries what CPU ranks that are processes send each other. Throws ConfigError where several were started without it: by torchrun, or
/// by what sets its variables, and by no launcher of MPI.
void refuse_without_mpi(const runtime::LaunchedRank& launched);

/// Folder in which processes with a GPU each meet. Throws ConfigError as rendezvous_options() does.
[[nodiscard]] runtime::RendezvousOptions meeting_of(const runtime::LaunchedRank& launched, std::chrono::milliseconds deadline);

}  // namespace mgplan::cli
