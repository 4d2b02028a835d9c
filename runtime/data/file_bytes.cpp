#include "runtime/data/file_bytes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::runtime {

FileBytes::FileBytes(std::string path, const std::string& what) : path_(std::move(path)) {
    // Not blocking: a pipe without a writer would keep us here for ever. It has no meaning for regular files.
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) {
        throw ConfigError(fmt::format("{} {} cannot be opened: {}; check the path, on every machine", what, path_, std::strerror(errno)));
    }
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(descriptor_);
        throw ConfigError(fmt::format("{} {} is no regular file; give a file", what, path_));
    }
    size_ = status.st_size;
}

FileBytes::~FileBytes() {
    ::close(descriptor_);
}

void FileBytes::read(std::int64_t at, std::span<std::byte> bytes) const {
    while (!bytes.empty()) {
        const ssize_t count = ::pread(descriptor_, bytes.data(), bytes.size(), at);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) throw RunError(fmt::format("{} cannot be read at byte {}: {}", path_, at, std::strerror(errno)));
        if (count == 0) throw RunError(fmt::format("{} ends at byte {}: it was shortened while it was read", path_, at));
        bytes = bytes.subspan(static_cast<std::size_t>(count));
        at += count;
    }
}

}  // namespace mgplan::runtime
