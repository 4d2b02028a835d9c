#pragma once
// JSON as people and Python write configs: a byte order mark, NaN and Infinity are read, what is ambiguous is refused.

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace mgplan::formats {

/// parse_json() for a config. A byte order mark is passed over. NaN, Infinity and -Infinity, which are no JSON and which
/// Python writes, become texts: they do no harm in fields that nobody reads, and are refused as numbers. Throws ConfigError
/// with the place for whatever is no JSON, and for a comment, UTF-16 and a field that one object states twice with different
/// values, of which readers take either.
[[nodiscard]] nlohmann::ordered_json parse_config(std::string_view text, const std::string& where);

}  // namespace mgplan::formats
