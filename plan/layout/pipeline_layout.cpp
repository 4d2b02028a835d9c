#include "plan/layout/pipeline_layout.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

/// A character and where it stood in the text, so that problems found after unrolling still point there.
struct Symbol {
    char letter;
    std::uint32_t at;
};
using Symbols = std::vector<Symbol>;

/// Letters, stage ends, digits and stars between the passes.
constexpr std::size_t kMaxSymbols = std::size_t{1} << 18;

[[noreturn]] void fail(std::string_view text, std::size_t at, std::string_view problem) {
    throw ConfigError(fmt::format("pipeline layout: {}\n{}", problem, caret_under(text, at)));
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// A repetition `*n` that begins at `begin`.
struct Repetition {
    std::size_t times;
    std::size_t end;  ///< after the last digit
};

std::optional<Repetition> repetition_at(const Symbols& in, std::size_t begin) {
    if (begin + 1 >= in.size() || in[begin].letter != '*' || !is_digit(in[begin + 1].letter)) return std::nullopt;
    Repetition found{0, begin + 1};
    for (; found.end < in.size() && is_digit(in[found.end].letter); ++found.end) {
        found.times = std::min(found.times * 10 + static_cast<std::size_t>(in[found.end].letter - '0'), kMaxSymbols * 2);
    }
    return found;
}

void append(Symbols& out, const Symbols& in, std::size_t begin, std::size_t end, std::size_t times, std::string_view text, std::size_t at) {
    if (times > 0 && (end - begin) > (kMaxSymbols - std::min(out.size(), kMaxSymbols)) / times) {
        fail(text, at,
             fmt::format("expands to more than {} layers or {} stages; use a smaller count", kMaxLayoutLetters, kMaxLayoutStages));
    }
    for (std::size_t i = 0; i < times; ++i) {
        out.insert(out.end(), in.begin() + static_cast<std::ptrdiff_t>(begin), in.begin() + static_cast<std::ptrdiff_t>(end));
    }
}

/// First pass: "(ab|)*3" -> "ab|ab|ab|". What does not fit the form stays as it is and is refused at the end.
Symbols unroll_groups(const Symbols& in, std::string_view text) {
    // The nearest ')' at or after each place, found once: many open parentheses must not cost a scan each.
    std::vector<std::size_t> closing(in.size() + 1, in.size());
    for (std::size_t i = in.size(); i-- > 0;) closing[i] = in[i].letter == ')' ? i : closing[i + 1];
    Symbols out;
    for (std::size_t i = 0; i < in.size();) {
        if (in[i].letter == '(' && closing[i] < in.size() && closing[i] > i + 1) {
            if (const auto repeat = repetition_at(in, closing[i] + 1)) {
                append(out, in, i + 1, closing[i], repeat->times, text, in[closing[i] + 2].at);
                i = repeat->end;
                continue;
            }
        }
        append(out, in, i, i + 1, 1, text, in[i].at);
        ++i;
    }
    return out;
}

/// Second pass: "t*3" -> "ttt".
Symbols unroll_letters(const Symbols& in, std::string_view text) {
    Symbols out;
    for (std::size_t i = 0; i < in.size();) {
        const auto repeat = repetition_at(in, i + 1);
        append(out, in, i, i + 1, repeat ? repeat->times : 1, text, repeat ? in[i + 2].at : in[i].at);
        i = repeat ? repeat->end : i + 1;
    }
    return out;
}

std::string why_not(char c) {
    switch (c) {
        case '(':
        case ')':
            return "a group is written (…)*n and does not hold another group";
        case '*':
            return "* stands between one letter or group and one number, as in t*3 or (tt|)*4";
        case 'e':
        case 'l':
            return fmt::format("'{}' is no layer; write {} for {}", c, c == 'e' ? 'E' : 'L', c == 'e' ? "the embedding" : "the loss");
        case 'T':
        case 'M':
            return fmt::format("'{}' is no layer; write {} for {}", c, c == 'T' ? 't' : 'm', c == 'T' ? "a decoder layer" : "an MTP layer");
        case ' ':
        case '\t':
        case '\n':
        case '\r':
            return "white space is not allowed; remove it";
        default:
            break;
    }
    if (is_digit(c)) return "a number needs a * in front, as in t*3";
    const bool printable = c > 0x20 && c < 0x7f;
    return fmt::format("{} is no layer; use E (embedding), t (decoder), m (MTP), L (loss), | between stages, t*3 and (tt|)*4",
                       printable ? fmt::format("'{}'", c) : std::string("this character"));
}

/// "tttt" -> "t*4"; "tt" stays.
std::string compact_stage(const std::string& stage) {
    std::string out;
    for (std::size_t i = 0; i < stage.size();) {
        std::size_t end = i;
        while (end < stage.size() && stage[end] == stage[i]) ++end;
        if (end - i > 2) {
            out += fmt::format("{}*{}", stage[i], end - i);
        } else {
            out.append(end - i, stage[i]);
        }
        i = end;
    }
    return out;
}

}  // namespace

std::vector<std::string> parse_pipeline_layout(std::string_view text) {
    if (text.size() > kMaxSymbols) {
        throw ConfigError(
            fmt::format("pipeline layout: {} characters are too many; use t*n and (…)*n to stay below {}", text.size(), kMaxSymbols));
    }
    Symbols symbols;
    symbols.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != ',') symbols.push_back({text[i], static_cast<std::uint32_t>(i)});
    }
    symbols = unroll_letters(unroll_groups(symbols, text), text);

    std::vector<std::string> stages(1);
    std::size_t letters = 0;
    for (const auto& symbol : symbols) {
        if (symbol.letter == '|') {
            if (stages.size() == kMaxLayoutStages) fail(text, symbol.at, fmt::format("more than {} stages; use fewer", kMaxLayoutStages));
            stages.emplace_back();
            continue;
        }
        if (std::string_view("EtmL").find(symbol.letter) == std::string_view::npos) fail(text, symbol.at, why_not(symbol.letter));
        if (++letters > kMaxLayoutLetters) fail(text, symbol.at, fmt::format("more than {} layers; use fewer", kMaxLayoutLetters));
        stages.back() += symbol.letter;
    }
    return stages;
}

std::string compact_pipeline_layout(const std::vector<std::string>& stages) {
    std::string out;
    for (std::size_t i = 0; i < stages.size();) {
        // The last stage has no bar after it, so it never joins a repetition.
        std::size_t end = i + 1;
        while (end + 1 < stages.size() && stages[end] == stages[i]) ++end;
        const std::string stage = compact_stage(stages[i]);
        if (i + 1 == stages.size()) {
            out += stage;
        } else if (end - i == 1) {
            out += stage + "|";
        } else {
            out += stage.empty() ? fmt::format("|*{}", end - i) : fmt::format("({}|)*{}", stage, end - i);
        }
        i = end;
    }
    return out;
}

}  // namespace mgplan
