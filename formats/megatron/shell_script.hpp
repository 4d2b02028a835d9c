#pragma once
// Launch scripts: the arguments of the command that starts training, as far as the text shows them without running it.

#include <string>
#include <string_view>

#include "formats/megatron/megatron_arguments.hpp"

namespace mgplan::formats {

/// The words after the last `….py` that the script runs with a model's flags (--num-layers, --hidden-size), with the values of its
/// variables and lists at that place: arrays, and texts of flags. Without such a command, all flags of its lists where these describe a
/// model; else every word of the text, as a plain file of flags has them. If a condition can be decided, the branch that runs counts; of
/// other branches the last one does, and the notes say so. Functions are read where they are called.
/// Files that it sources are read from `folder` at the place of the source command ("" reads none); nothing is ever run.
/// Throws ConfigError for quotes that stay open in the text that is read.
[[nodiscard]] ArgumentWords script_words(std::string_view text, const std::string& where, const std::string& folder = "",
                                         const ScriptInputs& inputs = {});

}  // namespace mgplan::formats
