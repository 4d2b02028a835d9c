#include "plan/text/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

char lower_case(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Levenshtein distance where it is at most `most`, else something above. Only what lies within `most` of the diagonal can be part of
/// such a distance (Ukkonen 1985), so the work is |a| * (2 most + 1) at most.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t most) {
    const std::size_t far = most + 1;
    if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > most) return far;
    std::vector<std::size_t> row(b.size() + 1, far);
    for (std::size_t j = 0; j <= std::min(b.size(), most); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        const std::size_t first = i > most ? i - most : 1, last = std::min(b.size(), i + most);
        std::size_t diagonal = row[first - 1], nearest = far;
        row[first - 1] = first == 1 && i <= most ? i : far;
        for (std::size_t j = first; j <= last; ++j) {
            const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1, far});
            nearest = std::min(nearest, row[j]);
        }
        if (std::min(nearest, row[first - 1]) > most) return far;
    }
    return row.back();
}

/// Rejects most names that are far from a given one by counting their letters.
class LetterCount {
public:
    explicit LetterCount(std::string_view text) : size_(text.size()) {
        for (const char c : text) ++left_[index(c)];
    }
    /// True if the edit distance may be at most `most`: every letter of the longer text that the other lacks is one edit.
    bool may_be_within(std::string_view other, std::size_t most) {
        if (std::max(size_, other.size()) - std::min(size_, other.size()) > most) return false;
        std::size_t shared = 0;
        for (const char c : other) shared += left_[index(c)]-- > 0 ? 1 : 0;
        for (const char c : other) ++left_[index(c)];
        return std::max(size_, other.size()) - shared <= most;
    }

private:
    static std::size_t index(char c) { return static_cast<unsigned char>(lower_case(c)); }

    std::size_t size_;
    std::array<std::ptrdiff_t, 256> left_{};
};

/// The user's text, short enough for a message and without control characters.
std::string shown(std::string_view text) {
    std::string out;
    for (char c : text.substr(0, 60)) out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    if (text.size() > 60) out += "...";
    return out;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) {
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

bool is_digits(std::string_view text) {
    if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
    return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<double> parse_real(std::string_view text) {
    double value = 0;
    if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::optional<std::int64_t> parse_size(std::string_view text) {
    struct Suffix {
        std::string_view name;
        double factor;
    };
    static constexpr std::array<Suffix, 17> kSuffixes{{{"KiB", 1024.0},
                                                       {"MiB", 1048576.0},
                                                       {"GiB", 1073741824.0},
                                                       {"TiB", 1099511627776.0},
                                                       {"Ki", 1024.0},
                                                       {"Mi", 1048576.0},
                                                       {"Gi", 1073741824.0},
                                                       {"Ti", 1099511627776.0},
                                                       {"KB", 1e3},
                                                       {"MB", 1e6},
                                                       {"GB", 1e9},
                                                       {"TB", 1e12},
                                                       {"K", 1e3},
                                                       {"M", 1e6},
                                                       {"G", 1e9},
                                                       {"T", 1e12},
                                                       {"B", 1.0}}};
    double factor = 1;
    for (const auto& suffix : kSuffixes) {
        if (text.size() > suffix.name.size() && lower_case(text).ends_with(lower_case(suffix.name))) {
            factor = suffix.factor;
            text.remove_suffix(suffix.name.size());
            break;
        }
    }
    if (factor == 1) {
        const auto whole = parse_integer(text);
        return whole && *whole >= 0 && *whole <= (std::int64_t{1} << 62) ? whole : std::nullopt;
    }
    const auto number = parse_real(text);
    if (!number || *number < 0 || *number * factor > std::ldexp(1.0, 62)) return std::nullopt;
    return static_cast<std::int64_t>(*number * factor + 0.5);
}

std::int64_t read_integer(Problems& problems, std::string_view field, std::string_view text, std::int64_t low, std::int64_t high) {
    const auto value = parse_integer(text);
    if (!value) {
        problems.add("{} = '{}' is {}; use one from {} to {}", field, shown(text),
                     is_digits(text) ? "a whole number out of range" : "not a whole number", low, high);
        return low;
    }
    if (*value < low || *value > high) {
        problems.add("{} = {} is out of range; use a whole number from {} to {}", field, *value, low, high);
        return low;
    }
    return *value;
}

std::vector<std::int64_t> read_integer_list(Problems& problems, std::string_view field, std::string_view text, std::int64_t low,
                                            std::int64_t high) {
    std::vector<std::int64_t> values;
    const auto words = split(text, ',');
    if (words.empty()) problems.add("{} is empty; give one or more whole numbers from {} to {}, such as 1,2,4", field, low, high);
    for (const auto& word : words) {
        const auto value = read_integer(problems, field, word, low, high);
        if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    }
    return values;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n\f\v";
    const auto begin = text.find_first_not_of(kBlanks);
    return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    if (text.empty()) return parts;
    std::size_t begin = 0;
    while (true) {
        const auto end = text.find(separator, begin);
        parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
        if (end == std::string_view::npos) return parts;
        begin = end + 1;
    }
}

std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = lower_case(c);
    return out;
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> names, std::size_t count) {
    const std::string wanted = lower_case(name.substr(0, 200));
    const std::size_t most = (wanted.size() + 2) / 3;
    LetterCount letters(wanted);
    std::vector<std::pair<std::size_t, std::string>> ranked;
    for (const auto& candidate : names) {
        // A name that begins with what was typed is near however long its rest is.
        const bool begins_so =
            !wanted.empty() && candidate.size() >= wanted.size() &&
            std::equal(wanted.begin(), wanted.end(), candidate.begin(), [](char w, char c) { return w == lower_case(c); });
        if (!begins_so && !letters.may_be_within(candidate, most)) continue;
        const std::size_t distance =
            begins_so ? std::min<std::size_t>(candidate.size() - wanted.size(), 1) : edit_distance(wanted, lower_case(candidate), most);
        if (distance <= most) ranked.emplace_back(distance, candidate);
    }
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> nearest;
    for (std::size_t i = 0; i < ranked.size() && i < count; ++i) {
        // Names much farther than the best one are noise.
        if (ranked[i].first <= ranked.front().first + 1) nearest.push_back(ranked[i].second);
    }
    return nearest;
}

std::string any_of_text(std::span<const std::string> names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
        text += names[i];
    }
    return text;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> names) {
    const auto nearest = nearest_names(name, names);
    return nearest.empty() ? std::string() : fmt::format("did you mean {}?", any_of_text(nearest));
}

std::vector<std::int64_t> divisors(std::int64_t n) {
    MGPLAN_ASSERT(n >= 1, "divisors of a positive number");
    std::vector<std::int64_t> low, high;
    for (std::int64_t d = 1; d * d <= n; ++d) {
        if (n % d != 0) continue;
        low.push_back(d);
        if (d != n / d) high.push_back(n / d);
    }
    low.insert(low.end(), high.rbegin(), high.rend());
    return low;
}

std::string divisors_text(std::int64_t n, std::int64_t high) {
    std::vector<std::string> names;
    for (const auto d : divisors(n)) {
        if (d > high) break;
        if (names.size() == 16) {
            names.emplace_back("...");
            break;
        }
        names.push_back(std::to_string(d));
    }
    return any_of_text(names);
}

std::int64_t largest_divisor(std::int64_t n, std::int64_t high) {
    constexpr std::int64_t kHighest = 1 << 20;  // of a search one by one
    for (std::int64_t one = std::min({n, high, kHighest}); one > 1; --one) {
        if (n % one == 0) return one;
    }
    return 1;
}

std::string caret_under(std::string_view text, std::size_t at) {
    // A long text is cut to a window around the spot.
    const std::size_t begin = at > 60 ? at - 60 : 0;
    const std::string window(text.substr(begin, 100));
    return fmt::format("    {}\n    {}^", shown(window.substr(0, 60)) == window.substr(0, 60) ? window : shown(window),
                       std::string(at - begin, ' '));
}

std::string with_thousands(std::int64_t value) {
    std::string digits = std::to_string(value < 0 ? -value : value);
    for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<std::size_t>(i), ",");
    return (value < 0 ? "-" : "") + digits;
}

std::string counted(std::int64_t count, std::string_view thing, std::string_view ending) {
    return fmt::format("{} {}{}", with_thousands(count), thing, count == 1 ? "" : ending);
}

std::string human_bytes(std::int64_t bytes) {
    const double value = static_cast<double>(bytes);
    const double size = std::abs(value);
    if (size >= 1073741824.0) return fmt::format("{:.1f} GiB", value / 1073741824.0);
    if (size >= 1048576.0) return fmt::format("{:.1f} MiB", value / 1048576.0);
    if (size >= 1024.0) return fmt::format("{:.1f} KiB", value / 1024.0);
    return fmt::format("{} B", bytes);
}

std::string human_seconds(double seconds) {
    if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
    if (seconds >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
    return fmt::format("{:.1f} us", seconds * 1e6);
}

}  // namespace mgplan
