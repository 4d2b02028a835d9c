#pragma once
// Allocations of a Megatron-LM rank before and during an iteration, and the memory that PyTorch's allocator reserves for them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/allocator_history.hpp"
#include "simulator/memory/allocator_replay.hpp"

namespace mgplan::simulator {

/// Allocations of Megatron-LM before the first iteration, in its order: every parameter on its own, the parameter and gradient buffers
/// (core/distributed/param_and_grad_buffer.py; with the distributed optimizer parameters move into theirs and their own memory is freed),
/// and the main parameters, one by one, each through a copy of its own type (core/optimizer/distrib_optimizer.py,
/// _build_model_and_main_param_groups). Sizes are those of rank 0 of the data-parallel group; of weights split over neighbours
/// (gathered_weights.hpp) those of its parts.
[[nodiscard]] std::vector<Allocation> megatron_setup(const Workload& workload, const Layout& layout, int pp_rank);

/// The moments of the same parameters, which the optimizer allocates in its first step and keeps (taken from time `from` on).
[[nodiscard]] std::vector<Allocation> megatron_moments(const Workload& workload, const Layout& layout, int pp_rank, std::int64_t from);

/// Number of iterations that are replayed at most.
inline constexpr int kReplayedIterations = 3;

/// Allocations of engine megatron on the rank of a stage. `trace`: allocations of its passes; `update`: bytes of further copies during the
/// optimizer's step, one for each parameter. Microbatches that only repeat the schedule's steady state are left out. `most_labelled`: the
/// passes' allocations have labels if there are no more than this; then the trace must have names.
[[nodiscard]] RankAllocations megatron_allocations(const Workload& workload, const Layout& layout, int pp_rank, const IterationTrace& trace,
                                                   std::int64_t update, std::size_t most_labelled);

/// Replays PyTorch's allocator over megatron_allocations(). `limit`: bytes of the device available for segments. Nothing if fragmentation
/// exceeds `most_fragmentation` of the peak of allocated bytes (replay_allocator_within).
[[nodiscard]] std::optional<ReservedMemory> replay_megatron(const Workload& workload, const Layout& layout, int pp_rank,
                                                            const IterationTrace& trace, std::int64_t update, std::int64_t limit,
                                                            double most_fragmentation);

/// replay_megatron() of a trace with names, recorded; `offloaded_bytes` and states are 0.
[[nodiscard]] AllocatorHistory record_megatron(const Workload& workload, const Layout& layout, int pp_rank, const IterationTrace& trace,
                                               std::int64_t update, std::int64_t limit);

}  // namespace mgplan::simulator
