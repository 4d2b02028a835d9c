#pragma once
// Small files that pass values between processes, perhaps of several machines.

#include <optional>
#include <string>

namespace mgplan::runtime {

/// Writes a file whose name is given once, also on network file systems: whoever sees it sees the whole text. Returns false, and leaves
/// the file as it is, if there is one already or none can be written.
bool publish_once(const std::string& path, const std::string& text);

/// The text of such a file; nothing while there is none.
[[nodiscard]] std::optional<std::string> published_text(const std::string& path);

}  // namespace mgplan::runtime
