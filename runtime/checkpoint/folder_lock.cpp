#include "runtime/checkpoint/folder_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <thread>

#include <fmt/chrono.h>
#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/launch/node_name.hpp"

namespace mgplan::runtime {
namespace {

std::string_view things(FilePurpose purpose) {
    return purpose == FilePurpose::weights ? "weights" : "checkpoints";
}

std::string holder_text() {
    return fmt::format("process {} on {}, since {:%Y-%m-%dT%H:%M:%SZ}", ::getpid(), node_name(process_environment()),
                       fmt::gmtime(std::time(nullptr)));
}

/// Returns the printable part of the holder's text in the lock file; a new holder may not have written it yet.
std::string written_holder(int descriptor) {
    std::array<char, 200> bytes{};
    const ssize_t count = ::pread(descriptor, bytes.data(), bytes.size(), 0);
    std::string text;
    for (ssize_t i = 0; i < count && bytes[static_cast<std::size_t>(i)] != '\n'; ++i) {
        const char c = bytes[static_cast<std::size_t>(i)];
        text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text.empty() ? "another process, which has not said yet which it is" : text;
}

/// Returns true if `path` still names the open file: after its removal other processes would lock a new file.
bool is_at(int descriptor, const std::string& path) {
    struct stat held {};
    struct stat named {};
    return ::fstat(descriptor, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

/// One attempt. A file whose name somebody has just given to another one counts as in use.
struct LockTried {
    int descriptor = -1;   ///< open and locked, or -1
    int error = 0;         ///< why not: EWOULDBLOCK where another holds it
    bool opened = true;    ///< true if `error` comes from the lock, false if from opening the file
    std::string holder{};  ///< of a file that is locked
};

std::string lock_path(const std::string& folder) {
    return (std::filesystem::path(folder) / "lock").string();
}

LockTried try_lock(const std::string& folder) {
    const std::string path = lock_path(folder);
    // For writing, because network file systems lock nothing else exclusively.
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) return {-1, errno, false};
    const int error = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (error == 0 && is_at(descriptor, path)) {
        // Only for people: where the disk is too full for it, the lock holds all the same.
        const std::string text = holder_text() + "\n";
        const ssize_t written = ::ftruncate(descriptor, 0) == 0 ? ::pwrite(descriptor, text.data(), text.size(), 0) : 0;
        static_cast<void>(written);
        return {descriptor};
    }
    LockTried tried{-1, error == 0 ? EINTR : error};
    if (error == EWOULDBLOCK) tried.holder = written_holder(descriptor);
    ::close(descriptor);
    return tried;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, std::chrono::milliseconds patience, FilePurpose purpose)
    : folder_(folder), purpose_(purpose) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (true) {
        const LockTried tried = try_lock(folder);
        if (!tried.opened) {
            throw ConfigError(fmt::format("{} folder {}: its file lock cannot be opened: {}; choose a folder that you may write",
                                          to_string(purpose), folder, std::strerror(tried.error)));
        }
        if (tried.error == 0) {
            descriptor_ = tried.descriptor;
            return;
        }
        if (tried.error != EWOULDBLOCK && tried.error != EINTR) {
            problem_ = std::strerror(tried.error);
            return;
        }
        if (tried.error == EINTR) continue;
        if (std::chrono::steady_clock::now() >= end) {
            throw ConfigError(
                fmt::format("{} folder {} is in use by another job ({}): two jobs would overwrite each other's {}; wait "
                            "for it or end it, or name another folder",
                            to_string(purpose), folder, tried.holder, things(purpose)));
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

bool FolderLock::keep() {
    if (descriptor_ < 0 || is_at(descriptor_, lock_path(folder_))) return false;
    LockTried tried = try_lock(folder_);
    while (tried.error == EINTR) tried = try_lock(folder_);
    if (tried.error != 0) {
        throw RunError(tried.error == EWOULDBLOCK
                           ? fmt::format("{} folder {}: its file lock was removed while this job ran, and another job has taken "
                                         "the folder since ({}): nothing more is saved, because two jobs would overwrite each other's "
                                         "{}; end one of them, and leave the file lock where it is",
                                         to_string(purpose_), folder_, tried.holder, things(purpose_))
                           : fmt::format("{} folder {}: its file lock was removed while this job ran and cannot be made anew "
                                         "({}): nothing more is saved; see that the folder is there and can be written",
                                         to_string(purpose_), folder_, std::strerror(tried.error)));
    }
    ::close(descriptor_);
    descriptor_ = tried.descriptor;
    return true;
}

FolderLock::~FolderLock() {
    if (descriptor_ < 0) return;
    // Whoever has opened it meanwhile finds it gone once he has locked it, and makes another.
    if (purpose_ == FilePurpose::weights && is_at(descriptor_, lock_path(folder_))) ::unlink(lock_path(folder_).c_str());
    ::close(descriptor_);
}

}  // namespace mgplan::runtime
