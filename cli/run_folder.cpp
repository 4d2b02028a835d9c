#include "cli/run_folder.hpp"

#include <ostream>

#include <fmt/core.h>

#include "runtime/checkpoint/checkpoint_folder.hpp"

namespace mgplan::cli {

std::unique_ptr<runtime::FolderLock> lock_folder(const RunFolder& folder, bool reports, Console& console) {
    runtime::check_writable_folder(folder.path, folder.purpose);
    if (!reports) return nullptr;
    auto lock = std::make_unique<runtime::FolderLock>(folder.path, runtime::FolderLock::kPatience, folder.purpose);
    if (!lock->problem().empty()) {
        console.err << fmt::format("mgplan: the file system of {} {} has no locks ({}): see to it that no other job saves there\n",
                                   folder.option, folder.path, lock->problem());
    }
    return lock;
}

bool keep_folder(runtime::FolderLock& lock, const RunFolder& folder, Console& console) {
    if (!lock.keep()) return false;
    console.err << fmt::format(
        "mgplan: the file lock of {} {} was removed while this job ran; it is there again, and no other job has the folder\n",
        folder.option, folder.path);
    return true;
}

}  // namespace mgplan::cli
