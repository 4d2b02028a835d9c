#include "formats/megatron/shell_test.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Truth = std::optional<bool>;
using Tokens = std::span<const std::string>;

constexpr std::size_t kMostTokens = 256;

Truth both_true(Truth left, Truth right) {
    if ((left && !*left) || (right && !*right)) return false;
    return left && right ? Truth(true) : std::nullopt;
}

Truth either_true(Truth left, Truth right) {
    if ((left && *left) || (right && *right)) return true;
    return left && right ? Truth(false) : std::nullopt;
}

bool holds_what_is_not_known(const std::string& word) {
    return word.find_first_of("$`") != std::string::npos;
}

Truth compared(const std::string& left, const std::string& sign, const std::string& right, bool double_brackets) {
    if (holds_what_is_not_known(left) || holds_what_is_not_known(right)) return std::nullopt;
    if (sign == "=" || sign == "==" || sign == "!=") {
        const Truth equal = double_brackets ? fits_pattern(left, right) : Truth(left == right);
        if (!equal) return std::nullopt;
        return *equal == (sign != "!=");
    }
    const auto a = parse_integer(left), b = parse_integer(right);
    if (!a || !b) return std::nullopt;
    if (sign == "-eq") return *a == *b;
    if (sign == "-ne") return *a != *b;
    if (sign == "-lt") return *a < *b;
    if (sign == "-le") return *a <= *b;
    if (sign == "-gt") return *a > *b;
    if (sign == "-ge") return *a >= *b;
    return std::nullopt;
}

/// Truth of the condition between the brackets.
Truth inside_brackets(Tokens tokens, bool double_brackets) {
    const auto split_at = [&](std::string_view one, std::string_view other, auto join) -> std::optional<Truth> {
        for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
            if (tokens[i] == one || tokens[i] == other)
                return join(inside_brackets(tokens.first(i), double_brackets), inside_brackets(tokens.subspan(i + 1), double_brackets));
        }
        return std::nullopt;
    };
    if (const auto joined = double_brackets ? split_at("||", "||", either_true) : split_at("-o", "-o", either_true)) return *joined;
    if (const auto joined = double_brackets ? split_at("&&", "&&", both_true) : split_at("-a", "-a", both_true)) return *joined;
    if (!tokens.empty() && tokens[0] == "!" && tokens.size() > 1) {
        const Truth inner = inside_brackets(tokens.subspan(1), double_brackets);
        return inner ? Truth(!*inner) : std::nullopt;
    }
    if (tokens.size() == 1) return holds_what_is_not_known(tokens[0]) ? std::nullopt : Truth(!tokens[0].empty());
    if (tokens.size() == 2 && (tokens[0] == "-z" || tokens[0] == "-n")) {
        if (holds_what_is_not_known(tokens[1])) return std::nullopt;
        return tokens[1].empty() == (tokens[0] == "-z");
    }
    if (tokens.size() == 3) return compared(tokens[0], tokens[1], tokens[2], double_brackets);
    return std::nullopt;
}

/// One command of a condition.
Truth truth_of_command(Tokens tokens) {
    if (tokens.empty()) return std::nullopt;
    if (tokens[0] == "!") {
        const Truth inner = truth_of_command(tokens.subspan(1));
        return inner ? Truth(!*inner) : std::nullopt;
    }
    if (tokens.size() == 1 && (tokens[0] == "true" || tokens[0] == ":")) return true;
    if (tokens.size() == 1 && tokens[0] == "false") return false;
    if (tokens.size() > 2 && tokens[0] == "[" && tokens.back() == "]") return inside_brackets(tokens.subspan(1, tokens.size() - 2), false);
    if (tokens.size() > 2 && tokens[0] == "[[" && tokens.back() == "]]") return inside_brackets(tokens.subspan(1, tokens.size() - 2), true);
    if (tokens.size() > 1 && tokens[0] == "test") return inside_brackets(tokens.subspan(1), false);
    return std::nullopt;
}

/// Commands with && or || between them; brackets keep theirs.
Truth truth_of_list(Tokens tokens) {
    int brackets = 0;
    std::string_view sign;
    std::size_t begin = 0;
    Truth truth;
    for (std::size_t i = 0; i <= tokens.size(); ++i) {
        if (i < tokens.size()) {
            brackets += tokens[i] == "[[" ? 1 : tokens[i] == "]]" ? -1 : 0;
            if (brackets > 0 || (tokens[i] != "&&" && tokens[i] != "||")) continue;
            if (!sign.empty() && sign != tokens[i]) return std::nullopt;  // mixed && and ||: not followed
        }
        const Truth part = truth_of_command(tokens.subspan(begin, i - begin));
        truth = sign.empty() ? part : sign == "&&" ? both_true(truth, part) : either_true(truth, part);
        if (i < tokens.size()) sign = tokens[i];
        begin = i + 1;
    }
    return truth;
}

}  // namespace

std::optional<bool> fits_pattern(std::string_view text, std::string_view pattern) {
    if (pattern.find('[') != std::string_view::npos) return std::nullopt;
    // Place of the last star, and the text that it has taken so far.
    std::size_t at = 0, star = std::string_view::npos, taken = 0;
    for (std::size_t i = 0; i < text.size();) {
        if (at < pattern.size() && pattern[at] == '*') {
            star = at++;
            taken = i;
        } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[i])) {
            ++at;
            ++i;
        } else if (star != std::string_view::npos) {
            at = star + 1;
            i = ++taken;
        } else {
            return false;
        }
    }
    while (at < pattern.size() && pattern[at] == '*') ++at;
    return at == pattern.size();
}

std::optional<bool> truth_of(std::string_view condition, Variables& variables, const std::string& where) {
    const auto begin = condition.find_first_not_of(" \t\r\n;");
    if (begin == std::string_view::npos) return std::nullopt;
    condition = condition.substr(begin, condition.find_last_not_of(" \t\r\n;") - begin + 1);
    constexpr std::size_t kLongest = 4096;
    if (condition.size() > kLongest) return std::nullopt;
    const std::size_t doubtful = variables.doubtful().size();
    Truth truth;
    if (condition.starts_with("((") && condition.ends_with("))") && condition.size() > 4) {
        const std::string inner = variables.expand(condition.substr(2, condition.size() - 4));
        const auto number = parse_integer(variables.expand(fmt::format("$(({}))", inner)));
        truth = number ? Truth(*number != 0) : std::nullopt;
    } else {
        std::vector<std::string> tokens;
        try {
            WordScanner scanner(condition, 0, variables, where);
            while (scanner.skip_blanks() && tokens.size() <= kMostTokens) tokens.push_back(scanner.word());
        } catch (const ConfigError&) {
            if (variables.overflowed()) throw;
            return std::nullopt;
        }
        if (tokens.size() > kMostTokens) return std::nullopt;
        truth = truth_of_list(tokens);
    }
    return variables.doubtful().size() == doubtful ? truth : std::nullopt;
}

}  // namespace mgplan::formats
