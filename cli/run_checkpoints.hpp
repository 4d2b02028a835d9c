#pragma once
// The checkpoints of `mgplan run`, as its options set them.

#include <cstdint>
#include <optional>
#include <string>

#include "cli/command.hpp"
#include "cli/run_folder.hpp"
#include "runtime/checkpoint/folder_lock.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::cli {

struct CheckpointRequest {
    std::optional<std::string> folder;
    std::int64_t every = 0;  ///< steps; 0: after the last step alone
    std::int64_t keep = 0;   ///< 0: all
    bool resume = false;
    std::int64_t steps = 1;  ///< of the training
    bool reports = true;     ///< this rank reports for the job
};

/// The folder of --checkpoint.
[[nodiscard]] RunFolder checkpoint_folder(const std::string& path);

/// Returns the folder to save to and the checkpoint to resume from, by the folder's contents. `lock`: nullptr, or outlives the run;
/// each save first checks that the folder is still this job's. Throws ConfigError for a folder with checkpoints without --resume, or with
/// others than the run's.
[[nodiscard]] runtime::CheckpointOptions checkpoints_of(const CheckpointRequest& request, const runtime::TrainingRunOptions& run,
                                                        runtime::FolderLock* lock, Console& console);

}  // namespace mgplan::cli
