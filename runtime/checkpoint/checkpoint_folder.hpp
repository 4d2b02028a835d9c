#pragma once
// The checkpoints of a folder: step-000000000040/ with a manifest.json is the complete one of step 40.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/durable_file.hpp"

namespace mgplan::runtime {

[[nodiscard]] std::string step_folder(const std::string& folder, std::int64_t step);
[[nodiscard]] std::string manifest_path(const std::string& folder, std::int64_t step);
[[nodiscard]] std::string rank_file_name(int rank);

/// True if a name that a file gave is that of a file in the same folder: no path, nothing hidden, no control characters.
[[nodiscard]] bool is_name_in_folder(std::string_view name);

/// Throws ConfigError naming `path` where it is a symbolic link. Nothing that a run writes inside its folder may be one: what it stands for
/// is another run's, and saving or removing here would change that. The folder itself may be a link.
void refuse_link(const std::string& path, FilePurpose purpose = FilePurpose::checkpoint);

/// Steps of the complete ones, ascending; none where the folder does not exist. Throws ConfigError naming the folder where it cannot
/// be read, and the step whose folder is a symbolic link.
[[nodiscard]] std::vector<std::int64_t> complete_checkpoints(const std::string& folder);

/// Makes the folder where it is not there. Throws ConfigError naming it where this process cannot write there.
void check_writable_folder(const std::string& folder, FilePurpose purpose = FilePurpose::checkpoint);

/// To be called after a complete save of `newest`. Removes older incomplete checkpoints and, unless `keep` is 0, complete ones but the
/// last `keep`. Touches only files with names that checkpoints have. Files that cannot be removed stay, and so do symbolic links
/// and their targets.
void remove_leftovers(const std::string& folder, std::int64_t newest, std::int64_t keep);

}  // namespace mgplan::runtime
