#include "runtime/launch/rank_from_environment.hpp"

#include <array>
#include <cstdlib>
#include <limits>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::runtime {
namespace {

struct Names {
    RankSource source;
    const char* rank;
    const char* size;
    const char* local_rank;
};

constexpr std::array kLaunchers{
    Names{RankSource::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    Names{RankSource::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    Names{RankSource::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    Names{RankSource::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

constexpr std::int64_t kMostRanks = std::numeric_limits<int>::max();

std::optional<std::int64_t> read(Problems& problems, const Environment& environment, const char* name, std::int64_t low) {
    const auto text = environment(name);
    if (!text) return std::nullopt;
    return read_integer(problems, name, *text, low, kMostRanks);
}

/// Returns the rank that a launcher's variables give, or nothing if they set neither rank nor size.
std::optional<LaunchedRank> said_by(const Names& names, const Environment& environment, Problems& problems) {
    Problems found;
    const auto rank = read(found, environment, names.rank, 0);
    const auto size = read(found, environment, names.size, 1);
    // A batch script of Slurm, see the header.
    if (names.source == RankSource::slurm && !size) return std::nullopt;
    if (!rank && !size) return std::nullopt;
    const auto local_rank = read(found, environment, names.local_rank, 0);
    const std::string_view launcher = to_string(names.source);
    if (!size) {
        found.add("{} = {} is set without {}; {} sets both: unset it, or set the other too", names.rank, *rank, names.size, launcher);
    }
    if (!rank) {
        found.add("{} = {} is set without {}; {} sets both: unset it, or set the other too", names.size, *size, names.rank, launcher);
    }
    if (found.empty() && *rank >= *size) {
        found.add("{} = {} is outside the world of {} = {}; ranks count from 0", names.rank, *rank, names.size, *size);
    }
    if (found.empty() && local_rank && *local_rank >= *size) {
        found.add("{} = {} is outside the world of {} = {}; local ranks count from 0", names.local_rank, *local_rank, names.size, *size);
    }
    LaunchedRank launched{0, 1, std::nullopt, names.source};
    if (found.empty()) {
        launched.rank = static_cast<int>(*rank);
        launched.size = static_cast<int>(*size);
        if (local_rank) launched.local_rank = static_cast<int>(*local_rank);
    }
    for (const auto& problem : found.list()) problems.add("{}", problem);
    return launched;
}

/// Refuses a RANK and WORLD_SIZE that torchrun did not set if another launcher's variables differ from them.
void check_against_launchers(const LaunchedRank& torch, const Environment& environment, Problems& problems) {
    if (environment("TORCHELASTIC_RUN_ID")) return;  // torchrun under another launcher: one torchrun for each host, say
    for (const auto& names : {kLaunchers[1], kLaunchers[2]}) {
        Problems of_the_other;
        const auto other = said_by(names, environment, of_the_other);
        if (!other || !of_the_other.empty() || (other->rank == torch.rank && other->size == torch.size)) continue;
        if (torch.local_rank && torch.size > other->size) continue;  // something like torchrun on each host
        problems.add(
            "RANK = {} and WORLD_SIZE = {} contradict {} = {} and {} = {}; unset RANK and WORLD_SIZE (torchrun did not set them: "
            "TORCHELASTIC_RUN_ID is missing), or name the rank by flags",
            torch.rank, torch.size, names.rank, other->rank, names.size, other->size);
    }
}

std::optional<int> local_rank_of_slurm(const LaunchedRank& launched, const Environment& environment) {
    Problems problems;
    const auto slurm = said_by(kLaunchers[3], environment, problems);
    if (!slurm || !problems.empty() || slurm->rank != launched.rank || slurm->size != launched.size) return std::nullopt;
    return slurm->local_rank;
}

LaunchedRank from_flags(const RankFlags& flags, Problems& problems) {
    const auto check = [&](std::string_view name, const std::optional<std::int64_t>& value, std::int64_t low) {
        if (value && (*value < low || *value > kMostRanks)) {
            problems.add("{} = {} is outside {} to {}", name, *value, low, kMostRanks);
        }
    };
    check("rank", flags.rank, 0);
    check("world size", flags.size, 1);
    check("local rank", flags.local_rank, 0);
    if (!flags.rank || !flags.size) {
        problems.add("{} is given without {}; give both, or neither and let the launcher's variables tell",
                     flags.rank   ? "a rank"
                     : flags.size ? "a world size"
                                  : "a local rank",
                     flags.rank   ? "a world size"
                     : flags.size ? "a rank"
                                  : "a rank and a world size");
    }
    if (!problems.empty()) return {};
    if (*flags.rank >= *flags.size) {
        problems.add("rank = {} is outside the world of size {}; ranks count from 0", *flags.rank, *flags.size);
        return {};
    }
    LaunchedRank launched{static_cast<int>(*flags.rank), static_cast<int>(*flags.size), std::nullopt, RankSource::flags};
    if (flags.local_rank) launched.local_rank = static_cast<int>(*flags.local_rank);
    return launched;
}

}  // namespace

std::string_view to_string(RankSource source) {
    switch (source) {
        case RankSource::none:
            return "no launcher";
        case RankSource::flags:
            return "flags";
        case RankSource::torchrun:
            return "torchrun";
        case RankSource::open_mpi:
            return "Open MPI";
        case RankSource::pmi:
            return "PMI";
        case RankSource::slurm:
            return "Slurm";
    }
    return "";
}

Environment process_environment() {
    return [](std::string_view name) -> std::optional<std::string> {
        const char* const value = std::getenv(std::string(name).c_str());
        if (value == nullptr) return std::nullopt;
        return value;
    };
}

LaunchedRank rank_from_environment(const RankFlags& flags, const Environment& environment) {
    Problems problems;
    LaunchedRank launched;
    if (flags.rank || flags.size || flags.local_rank) {
        launched = from_flags(flags, problems);
    } else {
        for (const auto& names : kLaunchers) {
            const auto said = said_by(names, environment, problems);
            if (!said) continue;
            launched = *said;
            // srun also sets PMI's variables, which have no local rank; Slurm's own variables have it.
            if (names.source == RankSource::pmi && !launched.local_rank && problems.empty())
                launched.local_rank = local_rank_of_slurm(launched, environment);
            if (names.source == RankSource::torchrun && problems.empty()) check_against_launchers(launched, environment, problems);
            break;
        }
    }
    problems.throw_if_any();
    return launched;
}

}  // namespace mgplan::runtime
