#include "cli/headroom.hpp"

#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

/// As a share of the card, or in bytes.
struct HeadroomGiven {
    double share = 0;
    std::int64_t bytes = 0;
};

std::optional<HeadroomGiven> parse_headroom(std::string_view text) {
    HeadroomGiven given;
    if (text.ends_with('%')) {
        const auto percent = parse_real(text.substr(0, text.size() - 1));
        if (!percent || *percent < 0 || *percent >= 100) return std::nullopt;
        given.share = *percent / 100;
        return given;
    }
    if (const auto number = parse_real(text)) {
        // A bare number above 1 would be bytes, and is most likely meant in another unit.
        if (*number < 0 || *number >= 1) return std::nullopt;
        given.share = *number;
        return given;
    }
    const auto size = parse_size(text);
    if (!size) return std::nullopt;
    given.bytes = *size;
    return given;
}

}  // namespace

void check_headroom(const std::string& given, Problems& problems) {
    if (!parse_headroom(given))
        problems.add("--headroom = '{}' is neither a size with its unit nor a share of the card; write 4GiB, 5% or 0.05",
                     given.substr(0, 60));
}

std::int64_t headroom_bytes(const std::string& given, const Workload& workload) {
    const auto [share, bytes] = parse_headroom(given).value_or(HeadroomGiven{});
    const std::int64_t headroom = bytes > 0 ? bytes : std::llround(share * static_cast<double>(workload.memory_limit));
    if (headroom >= workload.memory_limit)
        throw ConfigError(fmt::format("--headroom = {} leaves nothing of the {} of a GPU of {}; give less", given,
                                      human_bytes(workload.memory_limit), workload.cluster.name));
    return headroom;
}

}  // namespace mgplan::cli
