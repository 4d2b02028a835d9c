#pragma once
// Reads files of jobs; their folders may contain other kinds of files.

#include <cstddef>
#include <optional>
#include <string>

namespace mgplan::jobs {

/// Returns at most the last `most` bytes of a file; nothing if there is none that can be opened. Never waits: a pipe without a writer, or a
/// device, is none. Sets `began` to true if the file's first byte is among them.
[[nodiscard]] std::optional<std::string> end_of_regular_file(const std::string& path, std::size_t most, bool* began = nullptr);

/// Returns true if the path exists and is no regular file.
[[nodiscard]] bool is_irregular(const std::string& path);

}  // namespace mgplan::jobs
