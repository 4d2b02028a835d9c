#pragma once
// Files that a user names, read whole.

#include <cstddef>
#include <string>
#include <string_view>

namespace mgplan {

/// Text that a user gave, short enough for a message.
[[nodiscard]] std::string shown_in_message(const std::string& text);

/// Reads a whole text file of at most `limit` bytes; a pipe that stays silent for 5 seconds is given up. Throws ConfigError naming `what`,
/// the path and the reason.
[[nodiscard]] std::string read_text_file(const std::string& path, std::string_view what, std::size_t limit = 16U << 20U);

}  // namespace mgplan
