#include "plan/text/count_text.hpp"

#include <cmath>
#include <string>

#include "plan/text/text.hpp"

namespace mgplan {

std::optional<std::int64_t> parse_count(std::string_view text) {
    constexpr std::string_view kSuffixes = "kmg";
    const auto power = text.empty() ? std::string_view::npos : kSuffixes.find(lower_case(text.substr(text.size() - 1)));
    if (power == std::string_view::npos) {
        const auto whole = parse_integer(text);
        return whole && *whole >= 0 && *whole <= (std::int64_t{1} << 62) ? whole : std::nullopt;
    }
    const auto number = parse_real(text.substr(0, text.size() - 1));
    const double count = number ? std::ldexp(*number, 10 * (static_cast<int>(power) + 1)) : -1;
    if (count < 0 || count > std::ldexp(1.0, 62) || count != std::floor(count)) return std::nullopt;
    return static_cast<std::int64_t>(count);
}

std::int64_t read_count(Problems& problems, std::string_view field, std::string_view text, std::int64_t low, std::int64_t high) {
    const auto value = parse_count(text);
    if (value) return read_integer(problems, field, std::to_string(*value), low, high);
    if (parse_integer(text)) return read_integer(problems, field, text, low, high);
    problems.add("{} = '{}' is {}; use one from {} to {}, such as 4096 or 4k, which is the same", field, text.substr(0, 60),
                 is_digits(text) ? "a whole number out of range" : "not a whole number", low, high);
    return low;
}

}  // namespace mgplan
