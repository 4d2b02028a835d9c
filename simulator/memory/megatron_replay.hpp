#pragma once
// What a rank of Megatron-LM allocates before and during an iteration, and what PyTorch's allocator reserves for it.

#include <optional>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/allocator_replay.hpp"

namespace mgplan::simulator {

/// What Megatron-LM takes before the first iteration, in its order: every parameter on its own, the parameter and gradient
/// buffers (core/distributed/param_and_grad_buffer.py; with the distributed optimizer parameters move into theirs and what
/// they had is free), and the main parameters, one by one, each through a copy of its own type (core/optimizer/
/// distrib_optimizer.py, _build_model_and_main_param_groups). Sizes are those of rank 0 of the data-parallel group, of
/// weights that neighbours hold in parts (gathered_weights.hpp) those of its parts.
[[nodiscard]] std::vector<Allocation> megatron_setup(const Workload& workload, const Layout& layout, int pp_rank);

/// The moments of the same parameters, which the optimizer makes in its first step and keeps (taken from time `from` on).
[[nodiscard]] std::vector<Allocation> megatron_moments(const Workload& workload, const Layout& layout, int pp_rank, std::int64_t from);

/// PyTorch's allocator behind three iterations of engine megatron on the rank of a stage, whose passes take and return what
/// `trace` says; `update` bytes of further copies live during the optimizer's step, one for each parameter. Microbatches that
/// only repeat the schedule's steady state are left out. `limit`: bytes of the device that segments may take. Nothing where fragmentation
/// is more than `most_fragmentation` of what is allocated at most (replay_allocator_within).
[[nodiscard]] std::optional<ReservedMemory> replay_megatron(const Workload& workload, const Layout& layout, int pp_rank,
                                                            const IterationTrace& trace, std::int64_t update, std::int64_t limit,
                                                            double most_fragmentation);

}  // namespace mgplan::simulator
