#include "cli/launched_rank.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::cli {
namespace {

bool is_without_mpi(const runtime::LaunchedRank& launched) {
    const runtime::Environment environment = runtime::process_environment();
    return launched.source == runtime::RankSource::torchrun && !environment("OMPI_COMM_WORLD_SIZE") && !environment("PMI_SIZE");
}

}  // namespace

std::optional<runtime::LaunchedRank> launched_rank(const RankChoice& choice, std::int64_t world) {
    const runtime::LaunchedRank launched = runtime::rank_from_environment({}, runtime::process_environment());
    if (choice.rank) {
        if (*choice.rank >= world)
            throw ConfigError(fmt::format("--rank = {} is outside the plan's {} ranks; they count from 0", *choice.rank, world));
        if (launched.size > 1) {
            throw ConfigError(fmt::format("--rank runs one rank alone, in one process, and {} started {}; drop it, or start one process",
                                          to_string(launched.source), launched.size));
        }
        return std::nullopt;
    }
    if (launched.source == runtime::RankSource::none) return std::nullopt;
    // On a GPU, and without MPI, one process is all ranks.
    if (launched.size == 1 && (choice.ranks_in_process || choice.gpu || is_without_mpi(launched))) return std::nullopt;
    if (choice.ranks_in_process) {
        throw ConfigError(fmt::format("--ranks-in-process runs all ranks in one process, and {} started {}; drop it, or start one process",
                                      to_string(launched.source), launched.size));
    }
    if (!choice.gpu) refuse_without_mpi(launched);
    if (launched.size != world) {
        throw ConfigError(fmt::format(
            "the plan is for {} rank{}, and {} started {}; start {} (mpirun -n {} …), or make a plan for {} (mgplan --world {} …)", world,
            world == 1 ? "" : "s", to_string(launched.source), launched.size, world, world, launched.size, launched.size));
    }
    return launched;
}

void refuse_without_mpi(const runtime::LaunchedRank& launched) {
    if (launched.size == 1 || !is_without_mpi(launched)) return;
    throw ConfigError(fmt::format(
        "--device cpu: RANK = {} and WORLD_SIZE = {} say that this process is one of several CPU ranks, and no MPI connects them, "
        "which they need; start them with mpirun -n {} …, or unset both and let one process run all ranks as its threads",
        launched.rank, launched.size, launched.size));
}

runtime::RendezvousOptions meeting_of(const runtime::LaunchedRank& launched, std::chrono::milliseconds deadline) {
    runtime::RendezvousOptions meeting = runtime::rendezvous_options(launched, runtime::process_environment());
    meeting.join_deadline = std::min(meeting.join_deadline, deadline);
    meeting.deadline = deadline;
    return meeting;
}

}  // namespace mgplan::cli
