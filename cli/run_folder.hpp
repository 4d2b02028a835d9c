#pragma once
// A folder that `mgplan run` writes into, and no other job meanwhile.

#include <memory>
#include <string>
#include <string_view>

#include "cli/command.hpp"
#include "runtime/checkpoint/folder_lock.hpp"

namespace mgplan::cli {

struct RunFolder {
    std::string_view option;  ///< that names it: "--checkpoint"
    std::string path;
    runtime::FilePurpose purpose = runtime::FilePurpose::checkpoint;
};

/// Makes the folder where it is not there, and keeps other jobs out of it; nullptr on ranks that do not report: one of a job speaks for
/// all. Throws ConfigError where the folder cannot be written or another job has it.
[[nodiscard]] std::unique_ptr<runtime::FolderLock> lock_folder(const RunFolder& folder, bool reports, Console& console);

/// Before a write: makes sure that the folder is still this job's. Returns true, and says so, if the lock file was removed and had to be
/// made again. Throws RunError where another job has the folder.
bool keep_folder(runtime::FolderLock& lock, const RunFolder& folder, Console& console);

}  // namespace mgplan::cli
