#pragma once
// Words as a POSIX shell reads them back.

#include <span>
#include <string>

namespace mgplan {

/// The word itself where it holds plain characters alone, else in single quotes: what a shell reads back is the same
/// bytes, whatever they are (NUL excepted, which no argument can hold).
[[nodiscard]] std::string shell_word(const std::string& word);

/// Several, with a blank between two.
[[nodiscard]] std::string shell_words(std::span<const std::string> words);

}  // namespace mgplan
