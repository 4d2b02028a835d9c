#pragma once
// Reading files of jobs, whose folders anybody may have put something else into.

#include <cstddef>
#include <optional>
#include <string>

namespace mgplan::jobs {

/// The last bytes of a file, `most` of them; nothing where there is none that can be opened. Never waits: a pipe without a writer, or a
/// device, is none. Sets `began` to true if the file's first byte is among them.
[[nodiscard]] std::optional<std::string> end_of_regular_file(const std::string& path, std::size_t most, bool* began = nullptr);

/// Returns true if the path exists and is no regular file.
[[nodiscard]] bool is_irregular(const std::string& path);

}  // namespace mgplan::jobs
