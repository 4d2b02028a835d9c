#pragma once
// Launch scripts: the arguments of the command that starts training, as far as reading can tell without running it.

#include <string>
#include <string_view>

#include "formats/megatron/megatron_arguments.hpp"

namespace mgplan::formats {

/// The words behind the last `….py` that the script runs with a model's flags (--num-layers, --hidden-size), with what its
/// variables and lists hold there: arrays, and texts of flags. Without such a command, all flags of its lists where these describe a model;
/// else every word of the text, as a plain file of flags has them. Where a condition can be told the branch that runs counts, of other
/// branches the last one, which the notes say. Functions are read where they are called.
/// Files that it sources are read where they stand in `folder` ("" reads none); nothing is ever run.
/// Throws ConfigError for quotes that stay open in what is read.
[[nodiscard]] ArgumentWords script_words(std::string_view text, const std::string& where, const std::string& folder = "",
                                         const ScriptInputs& inputs = {});

}  // namespace mgplan::formats
