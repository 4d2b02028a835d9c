#pragma once
// Writes a checkpoint: every rank its own file, then one of them the manifest.

#include <cstdint>
#include <span>
#include <string>

#include "model/training/rank_trainer.hpp"
#include "runtime/checkpoint/manifest.hpp"

namespace mgplan::runtime {

/// Most elements that are staged on the host, checked and read back as one.
inline constexpr std::int64_t kSliceElements = std::int64_t{1} << 22;

/// Writes this rank's share of `pieces` to its file in `folder`, which is made if it does not exist, and returns once the file is
/// on the disk. Staged through host memory that no device counts. Returns the file's bytes. Throws RunError naming file and reason, also
/// if the folder or the file is a symbolic link.
std::int64_t save_rank_file(const std::string& folder, int rank, std::int64_t steps, std::span<const model::StatePiece> pieces);

/// To be called once every rank's file is on the disk: checks all of them and writes the manifest, which completes the checkpoint. Fills
/// in `manifest.files`. Throws RunError, also if files of other ranks are not visible.
void finish_checkpoint(const std::string& folder, int ranks, Manifest& manifest);

}  // namespace mgplan::runtime
