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
    /// Once ended: 0 where all went well; as a shell has it.
    int code = 0;
    /// Somebody ended it who was not us: scancel, or a signal.
    bool cancelled = false;
    /// A machine of the job's was lost: what its ranks, and those that waited for them, said first is a consequence.
    bool lost_node = false;
    /// Text of the engine: why the job waits, why it ended. May be empty.
    std::string text;
};

/// One attempt of a job.
class Engine {
public:
    virtual ~Engine() = default;
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    /// Throws RunError with what the engine said where it does not take the job.
    virtual void start() = 0;
    /// Cheap: queries the engine only at intervals. `urgent`: something has happened.
    [[nodiscard]] virtual EngineStatus look(bool urgent) = 0;
    /// Requests the end of the job; `now`: kills it.
    virtual void end(bool now) = 0;
    /// Its own number of the job; empty where it has none.
    [[nodiscard]] virtual std::string number() const { return ""; }

protected:
    Engine() = default;
};

/// `start_words` as reports::start_command() has them; `log`: where a script of this machine writes what it says itself.
[[nodiscard]] std::unique_ptr<Engine> make_engine(Via via, std::vector<std::string> start_words, const std::string& log);

/// The parsed output of `scontrol -o show job`.
struct SlurmJob {
    std::string state;  ///< "RUNNING"; empty where the text is of no job
    std::string reason;
    std::string nodes;  ///< "n[1-4]"
    int exit_code = 0;  ///< as a shell has it
};
[[nodiscard]] SlurmJob read_slurm_job(const std::string& scontrol_text);
/// Nodes that srun calls lost in what it wrote ("srun: error: Node failure on n3"), each once: "n3, n4"; empty where it names none.
[[nodiscard]] std::string lost_nodes_by_srun(const std::vector<std::string>& lines);
/// Returns the status for a state of Slurm's.
[[nodiscard]] EngineStatus status_of(const SlurmJob& job);

/// Queries Slurm for the job of this number; `state` is empty if Slurm has no such job. Throws RunError where Slurm does not answer.
[[nodiscard]] SlurmJob ask_slurm(const std::string& number);

/// The same as a status, which for a job that ended badly names the nodes that were lost meanwhile: what srun wrote into `log`, and those
/// that Slurm calls down or does not hear from.
[[nodiscard]] EngineStatus status_with_lost_nodes(const SlurmJob& job, const std::string& log);

}  // namespace mgplan::jobs
