#include "plan/text/text_file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

namespace fs = std::filesystem;

constexpr int kPipeMilliseconds = 5000;  ///< how long a pipe may stay silent

/// Reads a whole file in pieces with a bound: pipes and devices have no size, and /dev/zero no end. `pipe`: somebody has to write
/// into it, who may never come.
std::string read_at_most(const std::string& path, std::string_view what, std::size_t limit, bool pipe) {
    const auto refuse = [&](const std::string& reason) -> ConfigError {
        return ConfigError(fmt::format("{} file {} {}", what, shown_in_message(path), reason));
    };
    struct Descriptor {
        int value;
        ~Descriptor() {
            if (value >= 0) ::close(value);
        }
    };
    // Opening a pipe for reading blocks until it is opened for writing, unless O_NONBLOCK is set.
    const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | (pipe ? O_NONBLOCK : 0))};
    if (file.value < 0) throw refuse(fmt::format("cannot be opened: {}", std::strerror(errno)));
    std::string text;
    std::vector<char> piece(64U << 10U);
    while (true) {
        if (pipe) {
            pollfd ready{file.value, POLLIN, 0};
            if (::poll(&ready, 1, kPipeMilliseconds) == 0)
                throw refuse(fmt::format("is a pipe into which nobody writes for {} seconds; name a file", kPipeMilliseconds / 1000));
        }
        const ssize_t count = ::read(file.value, piece.data(), piece.size());
        if (count == 0) return text;
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (count < 0) throw refuse(fmt::format("cannot be read: {}", std::strerror(errno)));
        text.append(piece.data(), static_cast<std::size_t>(count));
        if (text.size() > limit)
            throw refuse(fmt::format("is larger than {}; this is no configuration", human_bytes(static_cast<std::int64_t>(limit))));
    }
}

}  // namespace

std::string shown_in_message(const std::string& text) {
    return text.size() > 120 ? text.substr(0, 117) + "..." : text;
}

std::string read_text_file(const std::string& path, std::string_view what, std::size_t limit) {
    if (path.empty()) throw ConfigError(fmt::format("{} file: the path is empty; name a file", what));
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (error == std::errc::too_many_symbolic_link_levels)
        throw ConfigError(fmt::format("{} file {} is a link that leads back to itself (too many links); name the file itself", what,
                                      shown_in_message(path)));
    if (!fs::exists(status)) throw ConfigError(fmt::format("{} file {} is not there; check the path", what, shown_in_message(path)));
    if (fs::is_directory(status)) throw ConfigError(fmt::format("{} file {} is a folder; name a file in it", what, shown_in_message(path)));
    std::string text = read_at_most(path, what, limit, fs::is_fifo(status));
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
        throw ConfigError(fmt::format("{} file {} is UTF-16 and so binary here; save it as UTF-8", what, shown_in_message(path)));
    if (text.find('\0') != std::string::npos)
        throw ConfigError(fmt::format("{} file {} is binary; give a text file", what, shown_in_message(path)));
    return text;
}

}  // namespace mgplan
