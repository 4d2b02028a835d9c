#pragma once
// Writing cluster files.

#include <string>

#include "plan/cluster/cluster_spec.hpp"

namespace mgplan::cli {

/// Returns today's date in UTC: 2026-11-21.
[[nodiscard]] std::string today();

/// Text of a file for --cluster FILE.
[[nodiscard]] std::string cluster_file_text(const ClusterSpec& cluster);

/// Writes a temporary file in the same folder and renames it: the file is complete or as it was before, whenever the program is stopped.
/// Throws RunError naming `option`.
void write_whole_file(const std::string& path, const std::string& option, const std::string& text);

}  // namespace mgplan::cli
