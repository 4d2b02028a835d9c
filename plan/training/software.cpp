#include "plan/training/software.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace mgplan {
namespace {

constexpr std::array<std::string_view, 10> kReleases{"25.04", "25.09",    "25.11", "26.02",    "26.02.01",
                                                     "26.04", "26.04.01", "26.06", "26.06.01", "26.08"};
static_assert(kReleases.size() == static_cast<std::size_t>(kNewestSoftware) + 1);

/// Months since the year 2000, a patch release counting a tenth of a month; nothing where the text is no release.
std::optional<double> months(std::string_view text) {
    double sum = 0;
    for (const double weight : {12.0, 1.0, 0.1}) {
        const std::size_t dot = std::min(text.find('.'), text.size());
        int value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + dot, value);
        if (error != std::errc{} || end != text.data() + dot || value < 0 || value > 99) return std::nullopt;
        sum += weight * value;
        text.remove_prefix(std::min(dot + 1, text.size()));
        if (text.empty()) break;
    }
    return text.empty() ? std::optional(sum) : std::nullopt;
}

}  // namespace

std::string_view to_string(Software software) {
    return kReleases[static_cast<std::size_t>(software)];
}

std::optional<Software> parse_software(std::string_view text) {
    for (std::size_t i = 0; i < kReleases.size(); ++i) {
        if (kReleases[i] == text) return static_cast<Software>(i);
    }
    return std::nullopt;
}

std::string known_software() {
    std::string list;
    for (const std::string_view release : kReleases) list.append(list.empty() ? "" : ", ").append(release);
    return list;
}

Software nearest_software(std::string_view text) {
    const std::optional<double> wanted = months(text);
    if (!wanted) return kNewestSoftware;
    Software nearest = kNewestSoftware;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < kReleases.size(); ++i) {
        const double distance = std::abs(months(kReleases[i]).value_or(0) - *wanted);
        if (distance < least) {
            least = distance;
            nearest = static_cast<Software>(i);
        }
    }
    return nearest;
}

}  // namespace mgplan
