#pragma once
// Finds the begin and end of a shell script's compound statements: if, loops, functions. Reads only the words in command position; nothing
// is ever run.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::formats {

/// A part of a text by offsets.
struct TextPart {
    std::size_t begin = 0, end = 0;
    [[nodiscard]] std::string_view of(std::string_view text) const { return text.substr(begin, end - begin); }
};

struct ShellBranch {
    TextPart test;  ///< between if (or elif) and then; empty for else
    TextPart body;
    bool otherwise = false;  ///< else
};

struct ShellIf {
    std::vector<ShellBranch> branches;
    std::size_t behind = 0;  ///< after fi
};

struct ShellLoop {
    TextPart test;  ///< between while (or for) and do
    TextPart body;
    std::size_t behind = 0;  ///< after done
};

struct ShellFunction {
    std::string name;
    TextPart body;
    std::size_t behind = 0;  ///< after the brace
};

/// The head of `for ((NAME = first; condition; NAME += step))`.
struct ShellCount {
    std::string name, first, condition;
    std::int64_t step = 1;
};
/// Nothing for any other head of a for loop.
[[nodiscard]] std::optional<ShellCount> shell_count(std::string_view head);

/// The longest statement that is followed.
inline constexpr std::size_t kLongestBlock = std::size_t{64} << 10U;

// The statement at the front of a text. Nothing if another one is there, if it stays open or is longer than kLongestBlock, or if statements
// are nested more than 64 deep.
[[nodiscard]] std::optional<ShellIf> if_statement(std::string_view text);
[[nodiscard]] std::optional<ShellLoop> while_loop(std::string_view text);
[[nodiscard]] std::optional<ShellLoop> for_loop(std::string_view text);
/// `name() { … }` and `function name { … }`.
[[nodiscard]] std::optional<ShellFunction> function_definition(std::string_view text);

}  // namespace mgplan::formats
