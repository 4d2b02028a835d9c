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

#include "plan/errors.hpp"
#include "runtime/launch/node_name.hpp"

namespace mgplan::runtime {
namespace {

std::string holder_text() {
    return fmt::format("process {} on {}, since {:%Y-%m-%dT%H:%M:%SZ}", ::getpid(), node_name(process_environment()),
                       fmt::gmtime(std::time(nullptr)));
}

/// What the holder has written, as far as it can be shown; it may be about to write it.
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

/// Whether the name still stands for the file: somebody may have removed it, and others would lock a new one.
bool is_at(int descriptor, const std::string& path) {
    struct stat held {};
    struct stat named {};
    return ::fstat(descriptor, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
           held.st_ino == named.st_ino;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, std::chrono::milliseconds patience) {
    const std::string path = (std::filesystem::path(folder) / "lock").string();
    const auto end = std::chrono::steady_clock::now() + patience;
    while (true) {
        // For writing, because network file systems lock nothing else exclusively.
        const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (descriptor < 0) {
            throw ConfigError(fmt::format("checkpoint folder {}: its file lock cannot be opened: {}; choose a folder that you may write",
                                          folder, std::strerror(errno)));
        }
        const bool locked = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
        const int error = locked ? 0 : errno;
        if (locked && is_at(descriptor, path)) {
            descriptor_ = descriptor;
            break;
        }
        const std::string holder = error == EWOULDBLOCK ? written_holder(descriptor) : "";
        ::close(descriptor);
        if (error != 0 && error != EWOULDBLOCK && error != EINTR) {
            problem_ = std::strerror(error);
            return;
        }
        if (!holder.empty() && std::chrono::steady_clock::now() >= end) {
            throw ConfigError(
                fmt::format("checkpoint folder {} is in use by another job ({}): two jobs would overwrite each other's checkpoints; wait "
                            "for it or end it, or name another folder",
                            folder, holder));
        }
        if (!holder.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    // Only for people: where the disk is too full for it, the lock holds all the same.
    const std::string text = holder_text() + "\n";
    const ssize_t written = ::ftruncate(descriptor_, 0) == 0 ? ::pwrite(descriptor_, text.data(), text.size(), 0) : 0;
    static_cast<void>(written);
}

FolderLock::~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace mgplan::runtime
