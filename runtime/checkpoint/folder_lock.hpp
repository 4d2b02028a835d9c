#pragma once
// One job at a time in a folder that runs write into.

#include <chrono>
#include <string>

#include "runtime/checkpoint/durable_file.hpp"

namespace mgplan::runtime {

/// Locks a folder for this process (flock(2) on FOLDER/lock) until it is destroyed or the process ends in any way: then the
/// kernel releases the lock, and the file that stays blocks nobody. The file names the holder.
class FolderLock {
public:
    /// Time to wait for the lock: a job that was just ended may not have released it yet.
    static constexpr std::chrono::milliseconds kPatience{3000};

    /// The folder exists. Throws ConfigError naming folder, holder and way out where another holds it still after `patience`, and
    /// where the file cannot be made.
    explicit FolderLock(const std::string& folder, std::chrono::milliseconds patience = kPatience,
                        FilePurpose purpose = FilePurpose::checkpoint);
    /// A folder of weights, which others take as it is, keeps no lock file.
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// Checks before a save that this process still holds the folder: the lock file may have been removed, and a second job may have
    /// locked the folder since. If the file is gone, takes the lock again and returns true. Throws RunError naming folder and holder if
    /// another job holds the folder now, or if the file cannot be created again. Does nothing and returns false if no lock is held.
    bool keep();

    /// Reason why the folder is not locked: the file system has no locks. Empty if it is locked.
    [[nodiscard]] const std::string& problem() const { return problem_; }

private:
    std::string folder_;
    FilePurpose purpose_;
    int descriptor_ = -1;
    std::string problem_;
};

}  // namespace mgplan::runtime
