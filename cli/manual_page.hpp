#pragma once
// The manual page mgplan(1), made from the option declarations.

#include <string>
#include <string_view>
#include <vector>

#include "cli/command_description.hpp"

namespace mgplan::cli {

/// Returns troff source with the macros of man(7): overview, each command with its options, exit codes, environment, examples. Has no
/// date, so that one source always gives one page.
[[nodiscard]] std::string manual_page(const std::vector<CommandDescription>& commands, std::string_view version);

}  // namespace mgplan::cli
