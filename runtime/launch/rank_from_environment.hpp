#pragma once
// The rank of this process, from the variables that the launcher set.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace mgplan::runtime {

enum class RankSource : std::uint8_t { none, flags, torchrun, open_mpi, pmi, slurm };
/// "flags", "torchrun", "Open MPI", "PMI", "Slurm", "no launcher"
[[nodiscard]] std::string_view to_string(RankSource source);

/// Flags of the command line.
struct RankFlags {
    std::optional<std::int64_t> rank;
    std::optional<std::int64_t> size;
    std::optional<std::int64_t> local_rank;
};

struct LaunchedRank {
    int rank = 0;
    int size = 1;
    /// Place among the ranks of the same host; nothing if the source does not give it.
    std::optional<int> local_rank;
    RankSource source = RankSource::none;
    bool operator==(const LaunchedRank&) const = default;
};

/// The value of an environment variable, or nothing.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
[[nodiscard]] Environment process_environment();

/// Returns the rank by the first of these sources that is set; without any, rank 0 of 1:
///   flags      rank, size, local rank
///   torchrun   RANK, WORLD_SIZE, LOCAL_RANK
///   Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK
///   PMI        PMI_RANK, PMI_SIZE, MPI_LOCALRANKID (MPICH and its kin); under srun, which sets the first two, SLURM_LOCALID
///   Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID: a task of srun. A batch script has a SLURM_PROCID too,
///              but is one process, whatever was allocated: it does not count.
/// Throws ConfigError with all problems: of the source taken, a variable that is no whole number, a rank without a size or
/// the other way round, a rank outside its world; and RANK and WORLD_SIZE that contradict Open MPI or PMI, unless torchrun
/// (TORCHELASTIC_RUN_ID) or its like (LOCAL_RANK, more ranks) was started by that launcher: left over from another shell
/// they would make every process the same rank.
[[nodiscard]] LaunchedRank rank_from_environment(const RankFlags& flags, const Environment& environment);

}  // namespace mgplan::runtime
