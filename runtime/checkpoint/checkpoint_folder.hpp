#pragma once
// The checkpoints of a folder: step-000000000040/ with a manifest.json is the complete one of step 40.

#include <cstdint>
#include <string>
#include <vector>

namespace mgplan::runtime {

[[nodiscard]] std::string step_folder(const std::string& folder, std::int64_t step);
[[nodiscard]] std::string manifest_path(const std::string& folder, std::int64_t step);
[[nodiscard]] std::string rank_file_name(int rank);

/// Throws ConfigError naming `path` where it is a symbolic link. Nothing inside a checkpoint folder may be one: its target belongs to
/// another run, and saving or removing here would change that. The folder itself may be a link.
void refuse_link(const std::string& path);

/// Steps of the complete ones, ascending; none where the folder does not exist. Throws ConfigError naming the folder where it cannot
/// be read, and the step whose folder is a symbolic link.
[[nodiscard]] std::vector<std::int64_t> complete_checkpoints(const std::string& folder);

/// Makes the folder if it does not exist. Throws ConfigError naming it if this process cannot write there.
void check_checkpoint_folder(const std::string& folder);

/// To be called after a complete save of `newest`. Removes older incomplete checkpoints and, unless `keep` is 0, complete ones but the
/// last `keep`. Touches only files with names that checkpoints have. Files that cannot be removed stay, and so do symbolic links
/// and their targets.
void remove_leftovers(const std::string& folder, std::int64_t newest, std::int64_t keep);

}  // namespace mgplan::runtime
