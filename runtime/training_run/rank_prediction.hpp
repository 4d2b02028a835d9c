#pragma once
// Predicts a rank's memory and traffic: runs the trainer's own code on shapes.

#include <memory>

#include "model/device/kernel_traits.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/measurement/run_values.hpp"
#include "runtime/memory/arena_script.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {

/// One rank of the task on the meta device, with the scratch of a device of given traits and the memory it would take: a
/// pool's blocks, or an arena's range. It repeats each step of the real trainer once that was reported, so that neither
/// memory nor the time at the end grow with the number of steps.
class RankPrediction {
public:
    /// `routing`: holds the real trainer's counts of the step that comes next, and may hold those of one more; without any, MoE layers are
    /// taken to be balanced. `arena`: the script of its memory; without one it has a pool. Both outlive this.
    RankPrediction(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for, model::RoutingLog* routing = nullptr,
                   const ArenaScript* arena = nullptr);
    ~RankPrediction();
    RankPrediction(const RankPrediction&) = delete;
    RankPrediction& operator=(const RankPrediction&) = delete;

    /// Traces the next step. `end`: how it ends, which depends on values that shapes do not have.
    void step(model::StepEnd end = model::StepEnd::updated);
    /// Trace the allocations and traffic of resuming from a checkpoint and of saving one, without files.
    void go_on_from(const model::TrainingPosition& position);
    void save();
    /// From the first allocation to the last step.
    [[nodiscard]] RankUse use() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

/// Returns the same task with few microbatches, so that a step is traced quickly, but enough that every rank has the same peak:
/// in steady state each forward waits for the backward that frees its memory, so the part after the warm-up
/// (at most 2·(pp - 1) + (vpp - 1)·group forwards, plan/schedule/schedule.hpp) repeats itself. MoE layers must be balanced.
[[nodiscard]] model::TrainingTask with_few_microbatches(const model::TrainingTask& task);

/// Returns the bytes that the pool or arena of a device of these traits takes for this rank in a step of the task, MoE layers balanced.
[[nodiscard]] std::int64_t bytes_needed(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for,
                                        MemoryMode mode = MemoryMode::pool, bool guarded = false);

/// Throws ConfigError, with the missing bytes, if `here` ranks of the size of this one need more memory than their devices
/// share: so that a run that cannot fit does not begin.
void check_one_rank(const TrainingRunOptions& options, const RankDevices& devices, int rank, std::int64_t here = 1);

}  // namespace mgplan::runtime
