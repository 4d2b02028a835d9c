#pragma once
// Enumerators with words_of() in JSON.

#include <string>
#include <string_view>
#include <vector>

#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan {

template <class Enum>
std::string word_of(Enum value) {
    return std::string(words_of(value).at(static_cast<std::size_t>(value)));
}

/// The enumerator that a field names; `fallback` where the field is absent or names none, which is a problem.
template <class Enum>
Enum read_word(JsonReader& reader, std::string_view field, Enum fallback) {
    const auto words = words_of(fallback);
    const std::string text = reader.text_or(field, word_of(fallback));
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == text) return static_cast<Enum>(i);
    }
    if (!text.empty())
        reader.problems().add("{}: {} = '{}' is not known; use {}", reader.where(), field, text.substr(0, 40),
                              any_of_text(std::vector<std::string>(words.begin(), words.end())));
    return fallback;
}

}  // namespace mgplan
