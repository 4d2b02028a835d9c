#pragma once
// The `case` of a shell script whose word is known: one of its arms runs.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mgplan::formats {

/// Offsets in the text that a `case` starts.
struct ChosenArm {
    std::size_t begin = 0, end = 0;  ///< statements of the arm that runs; empty where no pattern fits
    std::size_t behind = 0;          ///< after the line of esac
};

/// The word between case and in, at the front of `text`; nothing for other lines.
[[nodiscard]] std::optional<std::string_view> word_of_case(std::string_view text);

/// The arm for that word's value. Nothing where the statement is not laid out by lines (each arm begins one, ;; ends one), a pattern
/// has more than * and ?, or cases are nested.
[[nodiscard]] std::optional<ChosenArm> chosen_arm(std::string_view text, const std::string& value);

}  // namespace mgplan::formats
