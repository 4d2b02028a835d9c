#pragma once
// Writes a checkpoint: every rank its own file, then one of them the manifest.

#include <cstdint>
#include <span>
#include <string>

#include "model/training/rank_trainer.hpp"
#include "runtime/checkpoint/durable_file.hpp"
#include "runtime/checkpoint/manifest.hpp"

namespace mgplan::runtime {

/// Most elements that are staged on the host, checked and read back as one.
inline constexpr std::int64_t kSliceElements = std::int64_t{1} << 22;

/// Writes what this rank saves of `pieces` into its file in `folder`, which is made where it is not there, and returns once it is
/// on the disk. Staged through host memory that no device counts. Returns the file's bytes. Throws RunError naming file and reason, and
/// where the folder or the file is a symbolic link.
std::int64_t save_rank_file(const std::string& folder, int rank, std::int64_t steps, std::span<const model::StatePiece> pieces,
                            FilePurpose purpose = FilePurpose::checkpoint);

/// Once every rank's file is on the disk: looks at all of them, and claims the checkpoint by its manifest. `manifest.files` is
/// filled in. Throws RunError, also where files of other ranks are not to be seen.
void finish_checkpoint(const std::string& folder, int ranks, Manifest& manifest, FilePurpose purpose = FilePurpose::checkpoint);

}  // namespace mgplan::runtime
