#pragma once
// Reads a checkpoint, written by any layout, into the state of a rank.

#include <span>

#include "model/training/rank_trainer.hpp"
#include "runtime/checkpoint/saved_checkpoint.hpp"

namespace mgplan::runtime {

/// Writes all values of `pieces`, padding as 0. Reads no more than what overlaps them, through some slices' worth of host memory.
/// Throws ConfigError naming file and reason for values whose checksum is wrong, tensors that are missing, incomplete, or of
/// another shape or type; the pieces may hold anything then.
void load_state(const SavedCheckpoint& checkpoint, std::span<const model::StatePiece> pieces);

}  // namespace mgplan::runtime
