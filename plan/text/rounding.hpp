#pragma once
// Whole numbers in units.

#include <cstdint>

namespace mgplan {

/// Number of units that hold `value` >= 0.
[[nodiscard]] constexpr std::int64_t divide_up(std::int64_t value, std::int64_t unit) {
    return (value + unit - 1) / unit;
}

/// The smallest multiple of `unit` > 0 that is at least `value` >= 0.
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
    return divide_up(value, unit) * unit;
}

}  // namespace mgplan
