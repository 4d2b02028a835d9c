#pragma once
// The conditions of a shell script, as far as its variables are known: what stands behind if and while.

#include <optional>
#include <string>
#include <string_view>

#include "formats/megatron/shell_words.hpp"

namespace mgplan::formats {

/// The truth of a condition: [ … ], [[ … ]], test …, (( … )), true and false, with !, && and ||. Nothing where it asks for files or
/// commands, for variables that are not known or hang on a condition themselves, or holds what is not understood.
[[nodiscard]] std::optional<bool> truth_of(std::string_view condition, Variables& variables, const std::string& where);

/// Whether a text fits a pattern of * and ?. Nothing for patterns with brackets.
[[nodiscard]] std::optional<bool> fits_pattern(std::string_view text, std::string_view pattern);

}  // namespace mgplan::formats
