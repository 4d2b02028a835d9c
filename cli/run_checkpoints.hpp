#pragma once
// The checkpoints of `mgplan run`, as its options set them.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/command.hpp"
#include "runtime/checkpoint/folder_lock.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::cli {

struct CheckpointRequest {
    std::optional<std::string> folder;
    std::int64_t every = 0;  ///< steps; 0: after the last step alone
    std::int64_t keep = 0;   ///< 0: all
    bool resume = false;
    std::int64_t steps = 1;  ///< of the training
    bool reports = true;     ///< this rank speaks for the job
};

/// Makes the folder where it is not there, and keeps other jobs out of it; nothing without a folder, and on ranks that do not report:
/// one of a job speaks for all. Throws ConfigError where the folder cannot be written or another job has it.
[[nodiscard]] std::unique_ptr<runtime::FolderLock> lock_checkpoints(const CheckpointRequest& request, Console& console);

/// Where the run saves and what it goes on from, by what the folder holds. `lock`: nullptr, or outlives the run; the folder is this job's
/// at every save, or nothing is saved. Throws ConfigError for a folder that holds checkpoints without --resume, or others than the run's.
[[nodiscard]] runtime::CheckpointOptions checkpoints_of(const CheckpointRequest& request, const runtime::TrainingRunOptions& run,
                                                        runtime::FolderLock* lock, Console& console);

}  // namespace mgplan::cli
