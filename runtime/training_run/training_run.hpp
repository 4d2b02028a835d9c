#pragma once
// A training run: every rank trains for some steps, is measured, and is predicted again for the device and transport in use.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "model/training/rank_trainer.hpp"
#include "runtime/checkpoint/published_checkpoint.hpp"
#include "runtime/checkpoint/saved_checkpoint.hpp"
#include "runtime/data/sequences.hpp"
#include "runtime/launch/rank_from_environment.hpp"
#include "runtime/measurement/run_values.hpp"
#include "runtime/rendezvous/rendezvous.hpp"
#include "runtime/training_run/learning_rate.hpp"
#include "runtime/training_run/rank_devices.hpp"

namespace mgplan::runtime {

/// Receives one rank's ops and collectives, besides the measurement. For tests, which make ranks fail, leak or send too much.
class RankObserver : public model::OpListener, public model::CollectiveListener {
public:
    /// Called by the rank's thread before its first step.
    virtual void on_ready(model::Device& device, const model::World& world) = 0;
};

/// The folder in which a run saves its checkpoints, and the checkpoint that it resumes from. All ranks share the folder.
struct CheckpointOptions {
    std::string folder;      ///< empty: nothing is saved
    std::int64_t every = 0;  ///< steps; always also after the last step
    std::int64_t keep = 0;   ///< complete checkpoints that are kept; 0: all
    /// The run continues after this checkpoint's last step, under any layout. Its identity must be the run's: check_identity().
    std::shared_ptr<const SavedCheckpoint> resume;
    /// Called on the speaker before any rank writes a checkpoint; throws where none may.
    std::function<void()> before_save;
    /// Called on the speaker once a checkpoint is complete.
    std::function<void(std::int64_t step, std::int64_t bytes, double seconds)> on_saved;
};

/// Weights that are written when the run is done, in the hub's format. All ranks share the folder.
struct WeightExport {
    std::string folder;
    PublishedWeights weights;  ///< of the task's model
    std::string config;        ///< text of config.json
    /// Called on the speaker before any rank writes; throws where none may.
    std::function<void()> before_write;
    /// Called on the speaker when the files are complete.
    std::function<void(std::int64_t bytes)> on_written;
};

struct TrainingRunOptions {
    model::TrainingTask task;
    std::int64_t steps = 1;  ///< of the training, those before a checkpoint that it goes on from included
    CheckpointOptions checkpoint;
    /// Weights to begin with, of the task's model; with a checkpoint to go on from, they are not read.
    std::shared_ptr<const PublishedCheckpoint> weights;
    std::optional<WeightExport> export_weights;
    MemoryMode memory = MemoryMode::pool;
    /// With an arena: memory holds NaN before it is written and when it was given back, and writes past a tensor's end end the run.
    bool check_memory = false;
    LearningRateOptions learning_rate;
    std::shared_ptr<const Sequences> data;
    /// In one process: the ranks' devices; nullptr: the CPU. Over MPI it is always the CPU.
    std::shared_ptr<const RankDevices> devices;
    /// With processes as ranks: number of ranks that each machine in turn must hold (runtime/launch/placement.hpp), else a ConfigError
    /// before the first step. Without a value nothing is checked.
    std::optional<int> ranks_per_node;
    /// With processes as ranks: settings that all must have been started with, a line each ("--steps = 5"), 255 bytes at most. A rank with
    /// different ones ends the run before its first step with a ConfigError that names it.
    std::string alike;
    /// A step whose loss or gradients are NaN or infinite is left out instead of ending the run.
    bool skip_non_finite = false;
    /// A rank that waits longer for the others ends the run. Longer than the slowest computation between two collectives; over NCCL, where
    /// the host is ahead of the card, than two steps.
    std::chrono::milliseconds deadline{600'000};
    /// The rank that keeps the steps' values and checks `interrupt`.
    int speaker = 0;
    /// Called on the speaker for each step, counted from 1, in order: after it, or, on asynchronous devices, once the next one is issued.
    std::function<void(std::int64_t step, const StepValues& values)> on_step;
    /// When set to true, by a signal handler say, the run stops after the current step (ranks in one process alone).
    const std::atomic<bool>* interrupt = nullptr;
    /// In one process, and over NCCL: called with a message when ranks do not stop within seconds after a failure. Threads
    /// cannot be ended from outside, so it should end the program.
    std::function<void(const std::string&)> on_stuck;
    /// Over MPI: called with what went wrong and the exit code on a rank whose own work failed (not its communication, whose cause may
    /// be another rank), before it ends all ranks at once.
    std::function<void(const std::string& what, int code)> on_failure;
    std::function<std::unique_ptr<RankObserver>(int rank)> observe;
};

/// Returns true if this build can train at all (it has OpenBLAS); the functions below throw RunError if it cannot.
[[nodiscard]] bool training_available();

/// All ranks as threads of this process. Throws ConfigError for a plan that needs more memory than its devices have or
/// whose data holds ids outside the vocabulary, and for a checkpoint to go on from that is damaged, RunError naming rank, operation and
/// group for a run that failed. A loss or gradient that is not finite ends the run early instead: the values say so (RunValues::problem).
[[nodiscard]] RunValues run_in_process(const TrainingRunOptions& options);

/// One rank of the plan, alone, its partners emulated (runtime/comm/alone/lone_world.hpp): its memory, and the time of what
/// it computes. MoE layers are balanced. Losses mean nothing. Throws as run_in_process() does.
[[nodiscard]] RunValues run_alone(const TrainingRunOptions& options, int rank);

/// This process's rank over NCCL, on options.devices; ranks meet as `meeting` says. Rank 0 gets the values of all. A rank that
/// dies, goes silent or throws ends all of them within seconds: each throws RunError with the reason and where it was, or, if it
/// cannot stop by itself, calls options.on_stuck. Throws ConfigError for what run_in_process() does, and for what
/// Rendezvous does.
[[nodiscard]] std::optional<RunValues> run_over_nccl(const TrainingRunOptions& options, const RendezvousOptions& meeting);

/// This process's rank over MPI; rank 0 gets the values of all. A failure ends all ranks, with a message on stderr and exit
/// code 2 for bad data, 4 for all else; what is wrong before MPI connects is thrown.
[[nodiscard]] std::optional<RunValues> run_over_mpi(const TrainingRunOptions& options, const LaunchedRank& launched);

}  // namespace mgplan::runtime
