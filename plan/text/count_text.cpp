#include "plan/text/count_text.hpp"

#include <cmath>

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

}  // namespace mgplan
