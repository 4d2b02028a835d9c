#pragma once
// Writing cluster files.

#include <string>

#include "plan/cluster/cluster_spec.hpp"

namespace mgplan::cli {

/// Today in UTC: 2026-11-21.
[[nodiscard]] std::string today();

/// What --cluster FILE reads.
[[nodiscard]] std::string cluster_file_text(const ClusterSpec& cluster);

/// Writes beside the file and renames: it is complete or as it was before, whenever the program is stopped. Throws RunError naming
/// `option`.
void write_whole_file(const std::string& path, const std::string& option, const std::string& text);

}  // namespace mgplan::cli
