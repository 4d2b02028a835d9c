#pragma once
// The conditions of a shell script after if and while, as far as its variables have known values.

#include <optional>
#include <string>
#include <string_view>

#include "formats/megatron/shell_words.hpp"

namespace mgplan::formats {

/// The truth of a condition: [ … ], [[ … ]], test …, (( … )), true and false, with !, && and ||. Nothing if it depends on files or
/// commands, on variables that are not known or hang on a condition themselves, or holds unsupported syntax.
[[nodiscard]] std::optional<bool> truth_of(std::string_view condition, Variables& variables, const std::string& where);

/// True if a text fits a pattern of * and ?. Nothing for patterns with brackets.
[[nodiscard]] std::optional<bool> fits_pattern(std::string_view text, std::string_view pattern);

}  // namespace mgplan::formats
