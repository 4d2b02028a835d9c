#pragma once
// Starts a job's ranks and reports their status: a process of this machine (a script, with mpirun or torchrun inside), or Slurm.

#include <memory>
#include <string>
#include <vector>

#include "jobs/job.hpp"

namespace mgplan::jobs {

struct EngineStatus {
    enum class Phase : std::uint8_t { waiting, running, ended };
    Phase phase = Phase::waiting;
    /// Exit code of an ended job, as a shell has it; 0 if all went well.
    int code = 0;
    /// True if the job was ended from outside mgplan: by scancel, or a signal.
    bool cancelled = false;
    /// True if a machine of the job was lost: the first messages of its ranks, and of those that waited for them, are consequences.
    bool lost_node = false;
    /// Text of the engine: the reason why the job waits or ended. May be empty.
    std::string text;
};

/// One attempt of a job.
class Engine {
public:
    virtual ~Engine() = default;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    /// Throws RunError with the engine's message if it does not accept the job.
    virtual void start() = 0;
    /// Returns the status; queries the engine only at intervals, at shorter ones if `urgent`.
    [[nodiscard]] virtual EngineStatus look(bool urgent) = 0;
    /// Requests the end of the job; `now`: kills it.
    virtual void end(bool now) = 0;
    /// Returns the engine's number of the job; empty if it has none.
    [[nodiscard]] virtual std::string number() const { return ""; }

protected:
    Engine() = default;
};

/// `start_words` as reports::start_command() has them; `log`: file for a script's own output on this machine.
[[nodiscard]] std::unique_ptr<Engine> make_engine(Via via, std::vector<std::string> start_words, const std::string& log);

/// The parsed output of `scontrol -o show job`.
struct SlurmJob {
    std::string state;  ///< "RUNNING"; empty where the text is of no job
    std::string reason;
    std::string nodes;  ///< "n[1-4]"
    int exit_code = 0;  ///< as a shell has it
};
[[nodiscard]] SlurmJob read_slurm_job(const std::string& scontrol_text);
/// Returns the nodes that srun's output calls lost ("srun: error: Node failure on n3"), each once: "n3, n4"; empty if there are none.
[[nodiscard]] std::string lost_nodes_by_srun(const std::vector<std::string>& lines);
/// Returns the status for a state of Slurm's.
[[nodiscard]] EngineStatus status_of(const SlurmJob& job);

/// Queries Slurm for the job of this number; `state` is empty if Slurm has no such job. Throws RunError if Slurm does not answer.
[[nodiscard]] SlurmJob ask_slurm(const std::string& number);

/// Returns the same as a status, which for a job that ended badly names the nodes that were lost meanwhile: those that srun wrote into
/// `log`, and those that Slurm reports as down or not responding.
[[nodiscard]] EngineStatus status_with_lost_nodes(const SlurmJob& job, const std::string& log);

}  // namespace mgplan::jobs
