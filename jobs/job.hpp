#pragma once
// A job: its command, number of ranks, machines and engine. A value; reports/job_script writes it
// as a script, jobs/supervisor starts that and watches it.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mgplan::jobs {

/// Launcher of the ranks.
enum class Via : std::uint8_t { local, mpirun, slurm, torchrun };
/// "local", "mpirun", "slurm", "torchrun"
[[nodiscard]] constexpr std::string_view to_string(Via via) {
    switch (via) {
        case Via::local:
            return "local";
        case Via::mpirun:
            return "mpirun";
        case Via::slurm:
            return "slurm";
        case Via::torchrun:
            return "torchrun";
    }
    return "";
}

/// The way in which ranks that are processes find each other.
enum class Meeting : std::uint8_t {
    none,     ///< there is one process, which is all ranks
    mpi,      ///< the engine connects them through PMIx
    address,  ///< rank 0 listens at MASTER_ADDR and MASTER_PORT
    folder,   ///< by files in the attempt's folder (runtime/rendezvous)
};

/// Ranks fill nodes one after the other: rank r is on node r / ranks_per_node, with local rank r % ranks_per_node. As the axis
/// that a plan's order names first varies fastest, tp lies inside a node, then cp or ep.
struct Job {
    std::string id;      ///< the name of its folder
    std::string folder;  ///< absolute; script, plan, logs and record, to be seen by all nodes
    std::string working_directory;
    std::string title;  ///< for the script's headline: model and layout
    Via via = Via::local;
    int world = 1;
    int nodes = 1;
    int ranks_per_node = 1;
    bool gpus = false;  ///< one for each rank
    Meeting meeting = Meeting::none;
    /// Sets RANK, WORLD_SIZE and LOCAL_RANK for a program that supports no other launcher than torchrun.
    bool torch_variables = false;
    int port = 29500;       ///< of rank 0's machine, for Meeting::address; under Slurm the job's number decides
    std::string partition;  ///< Slurm's; empty: its default
    int segment = 0;        ///< nodes that Slurm's block topology keeps inside one block, an NVLink domain; 0: not requested
    std::string hostfile;   ///< mpirun's; empty: its own allocation, or this machine
    std::string program;    ///< mgplan itself, absolute
    /// One rank's command and its words.
    std::vector<std::string> command;
    /// Arguments after `command` from the second attempt on.
    std::vector<std::string> resume_words;
    /// Variables for every rank; those that `weak_environment` names are set only where the user has not.
    std::vector<std::pair<std::string, std::string>> environment;
    std::vector<std::pair<std::string, std::string>> weak_environment;
    int max_restarts = 0;
};

// Files of a job's folder.
[[nodiscard]] inline std::string script_file(const Job& job) {
    return job.folder + "/job.sh";
}
[[nodiscard]] inline std::string plan_file(const Job& job) {
    return job.folder + "/plan.json";
}
/// Rank 0's result.
[[nodiscard]] inline std::string report_file(const Job& job) {
    return job.folder + "/report";
}

}  // namespace mgplan::jobs
