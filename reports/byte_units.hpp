#pragma once
// One unit for a whole table or axis of bytes.

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace mgplan::reports {

struct ByteUnit {
    std::string_view name;
    double bytes = 1;
    /// "12.34"; without decimals for the unit bytes.
    [[nodiscard]] std::string text(std::int64_t value) const {
        return fmt::format("{:.{}f}", static_cast<double>(value) / bytes, bytes > 1 ? 2 : 0);
    }
};

/// The largest unit in which `most` is at least one.
[[nodiscard]] inline ByteUnit unit_for(std::int64_t most) {
    constexpr ByteUnit kUnits[] = {{"GiB", 1073741824.0}, {"MiB", 1048576.0}, {"KiB", 1024.0}};
    for (const ByteUnit& unit : kUnits) {
        if (static_cast<double>(most) >= unit.bytes) return unit;
    }
    return {"bytes", 1};
}

}  // namespace mgplan::reports
