#pragma once
// The arena of a rank of a training run: planned from a trace of the trainer's own code on shapes.

#include "model/device/kernel_traits.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/memory/arena_script.hpp"

namespace mgplan::runtime {

/// Returns the script of this rank's allocations for a device of given traits. Tensors whose size depends on a router's choices have no
/// place in it: their sizes differ between two traces in which the other ranks send different numbers of copies. Throws ConfigError for
/// a task whose steps are not alike.
/// `guarded`: with bytes after every tensor that must not be written.
[[nodiscard]] ArenaScript arena_script(const model::TrainingTask& task, int rank, const model::KernelTraits& stands_for,
                                       bool guarded = false);

}  // namespace mgplan::runtime
