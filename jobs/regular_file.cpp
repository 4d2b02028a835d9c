#include "jobs/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace mgplan::jobs {

std::optional<std::string> end_of_regular_file(const std::string& path, std::size_t most, bool* began) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) return std::nullopt;
    struct stat status {};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(file);
        return std::nullopt;
    }
    std::int64_t at = std::max<std::int64_t>(0, status.st_size - static_cast<std::int64_t>(most));
    if (began != nullptr) *began = at == 0;
    std::string text(static_cast<std::size_t>(status.st_size - at), '\0');
    std::size_t filled = 0;
    while (filled < text.size()) {
        const ssize_t count = ::pread(file, text.data() + filled, text.size() - filled, at);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        filled += static_cast<std::size_t>(count);
        at += count;
    }
    ::close(file);
    text.resize(filled);
    return text;
}

bool is_irregular(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

}  // namespace mgplan::jobs
