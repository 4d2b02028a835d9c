#pragma once
// One job at a time in a folder that runs write into.

#include <chrono>
#include <string>

#include "runtime/checkpoint/durable_file.hpp"

namespace mgplan::runtime {

/// Holds a folder for this process (flock(2) on FOLDER/lock) until it is destroyed or the process ends, however that happens: the
/// kernel lets go, and the file that stays blocks nobody. The file names the holder, for others to read.
class FolderLock {
public:
    /// A job that was just ended may still be letting go; so long others wait for it.
    static constexpr std::chrono::milliseconds kPatience{3000};

    /// The folder exists. Throws ConfigError naming folder, holder and way out where another holds it still after `patience`, and
    /// where the file cannot be made.
    explicit FolderLock(const std::string& folder, std::chrono::milliseconds patience = kPatience,
                        FilePurpose purpose = FilePurpose::checkpoint);
    /// A folder of weights, which others take as it is, keeps no lock file.
    ~FolderLock();
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// Makes sure, before a save, that the folder is still this process's: somebody may have removed the lock file, and a second job may
    /// have come in since then. Where nobody has, the lock is taken anew; returns whether that was so. Throws RunError naming folder
    /// and holder where another job holds the folder now, or where the file cannot be made anew. Does nothing where nothing is held.
    bool keep();

    /// Why nothing is held: the file system has no locks. Empty where the folder is held.
    [[nodiscard]] const std::string& problem() const { return problem_; }

private:
    std::string folder_;
    FilePurpose purpose_;
    int descriptor_ = -1;
    std::string problem_;
};

}  // namespace mgplan::runtime
