#pragma once
// Launchers that take Megatron-LM's flags and set some of them by their own code: slime, miles, ms-swift.

#include <optional>
#include <string_view>

#include "formats/megatron/megatron_arguments.hpp"

namespace mgplan::formats {

/// Adds the flags that the launcher sets where the command does not state them, renames and drops its own flags, and notes what it added.
/// Commands of other programs stay as they are. `text`: the script, by which the launcher is recognised; `model`: given next to it.
void add_launcher_flags(ArgumentWords& found, std::string_view text, const std::optional<ModelSpec>& model);

}  // namespace mgplan::formats
