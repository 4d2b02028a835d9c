#pragma once
// Values of a shell's integer arithmetic: the text between $(( and )).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace mgplan::formats {

/// The text of a variable; nothing where it is not known.
using VariableLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// The value of an expression by the rules of Bash's manual, "Shell Arithmetic": 64-bit integers, C's operators and their order of
/// precedence, ** for powers, names with or without $ and braces. Nothing where a variable is not known, for a division by zero, an
/// overflow, assignments (=, ++) and whatever else does not parse.
[[nodiscard]] std::optional<std::int64_t> shell_arithmetic(std::string_view expression, const VariableLookup& lookup);

}  // namespace mgplan::formats
