#pragma once
// Inputs of a launch script from outside: Slurm's variables, sourced files, values that only a run would reveal.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mgplan::formats {

/// The variables that sbatch sets from a script's #SBATCH lines (sbatch(1), "Output environment variables"): numbers of nodes, tasks and
/// GPUs.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> slurm_variables(std::string_view script);

/// Names that a line which is no assignment sets all the same: by for, select, read, unset, let and (( … )).
[[nodiscard]] std::vector<std::string> variables_set_by(std::string_view line);

/// Names after the $ of a text, and in its arithmetic: "a$B${C:-1}$((D*2))" has B, C and D.
[[nodiscard]] std::vector<std::string> variables_in(std::string_view text);

/// The path of `source PATH` or `. PATH`, without quotes; empty for other lines.
[[nodiscard]] std::string_view sourced_path(std::string_view line);

/// True if a sourced path is that of a shell's or an environment's own settings: ~/.bashrc, venv/bin/activate, /etc/profile.
[[nodiscard]] bool sets_no_flags(std::string_view path);

/// The text of a sourced file of at most 1 MiB: at its path within the folder, or in the script's folder under its own name if the script
/// computes the path ("$(dirname $0)/common.sh"). Nothing if it is not available or the folder is "".
[[nodiscard]] std::optional<std::string> sourced_file(const std::string& path, const std::string& folder);

}  // namespace mgplan::formats
