#pragma once
// The takes and returns of one rank over a training iteration, recorded on shapes, and what an engine's allocator makes of them.

#include <vector>

#include "model/training/rank_trainer.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/allocator_replay.hpp"

namespace mgplan::simulator {

/// What a rank takes before it trains, and in an iteration.
struct RankRecording {
    std::vector<Allocation> setup;
    IterationTrace iteration;
};

/// Runs the first rank of a stage on shapes, every chunk forward and backward once. Throws ConfigError for what the layers do
/// not compute.
[[nodiscard]] RankRecording record_rank(const model::TrainingTask& task, int pp_rank);

/// What Megatron-LM takes before the first iteration, in its order: every parameter on its own, the parameter and gradient
/// buffers (core/distributed/param_and_grad_buffer.py; with the distributed optimizer parameters move into theirs and what
/// they had is free), and the main parameters, one by one, each through a copy of its own type (core/optimizer/
/// distrib_optimizer.py, _build_model_and_main_param_groups). Sizes are those of rank 0 of the data-parallel group.
[[nodiscard]] std::vector<Allocation> megatron_setup(const Workload& workload, const Layout& layout, int pp_rank);

/// The moments of the same parameters, which the optimizer makes in its first step and keeps (taken from time `from` on).
[[nodiscard]] std::vector<Allocation> megatron_moments(const Workload& workload, const Layout& layout, int pp_rank, std::int64_t from);

/// PyTorch's allocator behind three iterations of engine megatron on the rank of a stage, whose passes take and return what
/// `trace` says; `update` bytes of further copies live during the optimizer's step, one for each parameter. Beyond so many microbatches
/// that the schedule is in its steady state further ones only repeat it, and are left out.
[[nodiscard]] ReservedMemory replay_megatron(const Workload& workload, const Layout& layout, int pp_rank, const IterationTrace& trace,
                                             std::int64_t update = 0);

}  // namespace mgplan::simulator
