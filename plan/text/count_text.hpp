#pragma once
// Counts of tokens as people write them.

#include <cstdint>
#include <optional>
#include <string_view>

#include "plan/text/errors.hpp"

namespace mgplan {

/// A count of tokens or the like: digits with an optional suffix k, M or G (powers of 1024, in upper or lower case): "4k" = 4,096,
/// "1M" = 1,048,576, "1.5k" = 1,536. Nothing for anything else, for what is no whole number, negative, or beyond 2^62.
[[nodiscard]] std::optional<std::int64_t> parse_count(std::string_view text);

/// Reads such a count in [low, high]; otherwise adds a problem of `field` and returns `low`.
std::int64_t read_count(Problems& problems, std::string_view field, std::string_view text, std::int64_t low, std::int64_t high);

}  // namespace mgplan
