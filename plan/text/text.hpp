#pragma once
// Reading numbers and names from text people typed, with bounds, and helping where they slipped.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan {

class Problems;

/// A whole number in decimal digits with an optional sign; nothing for anything else or beyond 64 bits.
[[nodiscard]] std::optional<std::int64_t> parse_integer(std::string_view text);

/// True for digits alone, with or without a sign: a whole number, however large.
[[nodiscard]] bool is_digits(std::string_view text);

/// A finite real number ("0.5", "1e-5"); nothing for NaN, infinities or trailing text.
[[nodiscard]] std::optional<double> parse_real(std::string_view text);

/// A size: digits with an optional decimal suffix K M G T (powers of 1000) or Ki Mi Gi Ti (powers of 1024), each
/// with or without B: "128M" = 128,000,000, "2GiB" = 2^31. Nothing for anything else, negative, or beyond 2^62.
[[nodiscard]] std::optional<std::int64_t> parse_size(std::string_view text);

/// Reads `text` as a whole number in [low, high]; otherwise adds one problem naming `field` and returns `low`.
std::int64_t read_integer(Problems& problems, std::string_view field, std::string_view text, std::int64_t low, std::int64_t high);

/// Reads a comma-separated list of such numbers ("1,2,4"); duplicates are dropped, order is kept.
std::vector<std::int64_t> read_integer_list(Problems& problems, std::string_view field, std::string_view text, std::int64_t low,
                                            std::int64_t high);

/// Splits at a separator; "" gives an empty list.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);

/// The text without blanks and line ends at its borders.
[[nodiscard]] std::string_view trimmed(std::string_view text);

[[nodiscard]] std::string lower_case(std::string_view text);

/// The up to `count` names nearest to `name` by edit distance, nearest first, none farther than a third of its letters.
[[nodiscard]] std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names, std::size_t count = 3);

/// "did you mean a, b or c?" for the nearest names, "" where none is near.
[[nodiscard]] std::string did_you_mean(std::string_view name, std::span<const std::string> names);

/// "a, b or c"
[[nodiscard]] std::string any_of_text(std::span<const std::string> names);

/// "1, 2, 4 or 8": the divisors of n that are at most `high`, for messages (at most 16, ends with "…" when cut).
[[nodiscard]] std::string divisors_text(std::int64_t n, std::int64_t high);

/// All divisors of n in ascending order; n >= 1.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

/// The largest divisor of n that is at most `high` and 2^20; 1 where n or `high` is below 1.
[[nodiscard]] std::int64_t largest_divisor(std::int64_t n, std::int64_t high);

/// Two lines: the text, and a caret under position `at`.
[[nodiscard]] std::string caret_under(std::string_view text, std::size_t at);

/// "1,234,567"
[[nodiscard]] std::string with_thousands(std::int64_t value);

/// "1 layer", "1,024 layers"; `ending` makes the plural.
[[nodiscard]] std::string counted(std::int64_t count, std::string_view thing, std::string_view ending = "s");

/// "12.3 GiB", "512.0 MiB": binary units, one decimal.
[[nodiscard]] std::string human_bytes(std::int64_t bytes);

/// "1.23 s", "45.6 ms", "7.8 us"
[[nodiscard]] std::string human_seconds(double seconds);

}  // namespace mgplan
