#include "formats/megatron/shell_case.hpp"

#include <algorithm>

#include "formats/megatron/shell_test.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

std::string unquoted(std::string_view word) {
    std::string plain(trimmed(word));
    if (plain.size() >= 2 && (plain.front() == '"' || plain.front() == '\'') && plain.back() == plain.front())
        plain = plain.substr(1, plain.size() - 2);
    return plain;
}

/// True if one of the patterns fits; nothing where one is no word with or without * and ?.
std::optional<bool> fits(std::string_view patterns, const std::string& value) {
    bool any = false;
    for (const std::string& each : split(patterns, '|')) {
        const std::string pattern = unquoted(each);
        if (pattern.find_first_of("[$`\"' ") != std::string::npos) return std::nullopt;
        const bool quoted = trimmed(each).starts_with('"') || trimmed(each).starts_with('\'');
        any = any || (quoted ? pattern == value : fits_pattern(value, pattern).value_or(false));
    }
    return any;
}

}  // namespace

std::optional<std::string_view> word_of_case(std::string_view text) {
    const std::string_view line = trimmed(text.substr(0, text.find('\n')));
    if (!line.starts_with("case ") || !line.ends_with(" in")) return std::nullopt;
    return trimmed(line.substr(5, line.size() - 8));
}

std::optional<ChosenArm> chosen_arm(std::string_view text, const std::string& value) {
    ChosenArm chosen;
    bool found = false, inside = false, runs = false;
    for (std::size_t at = std::min(text.find('\n'), text.size()); at < text.size();) {
        const std::size_t begin = at + 1, end = std::min(text.find('\n', begin), text.size());
        const std::string_view line = trimmed(text.substr(begin, end - begin));
        at = end;
        if (line.starts_with("case ")) return std::nullopt;
        if (!inside) {
            if (line == "esac") {
                chosen.behind = end;
                return chosen;
            }
            if (line.empty() || line.starts_with('#')) continue;
            const auto closing = line.find(')');
            if (closing == std::string_view::npos) return std::nullopt;
            const std::string_view patterns = line.substr(line.starts_with('(') ? 1 : 0, closing - (line.starts_with('(') ? 1 : 0));
            const auto fit = fits(patterns, value);
            if (!fit) return std::nullopt;
            inside = true;
            runs = *fit && !found;
            found = found || *fit;
            if (runs) chosen.begin = static_cast<std::size_t>(line.data() - text.data()) + closing + 1;
        }
        if (!line.ends_with(";;")) continue;
        if (runs) chosen.end = static_cast<std::size_t>(line.data() - text.data()) + line.size() - 2;
        inside = runs = false;
    }
    return std::nullopt;
}

}  // namespace mgplan::formats
