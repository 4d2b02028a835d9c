#pragma once
// Completion scripts for shells, made from the option declarations.

#include <string>
#include <vector>

#include "cli/command_description.hpp"

namespace mgplan::cli {

enum class Shell { bash, zsh, fish };

/// Names that completion offers in addition to the declarations.
struct PresetNames {
    std::vector<std::string> models;
    std::vector<std::string> clusters;
};

/// Returns a script that, once sourced, completes commands, options and their values: words, preset names, files. A command line
/// without a command is one of plan, as in mgplan itself.
[[nodiscard]] std::string shell_completion(Shell shell, const std::vector<CommandDescription>& commands, const PresetNames& presets);

}  // namespace mgplan::cli
