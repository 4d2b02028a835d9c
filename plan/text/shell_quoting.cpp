#include "plan/text/shell_quoting.hpp"

#include <string_view>

namespace mgplan {

std::string shell_word(const std::string& word) {
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
    std::string quoted = "'";
    for (const char c : word) {
        // Nothing is special inside single quotes but the quote itself: it ends them, follows escaped, and begins new ones.
        if (c == '\'')
            quoted += "'\\''";
        else
            quoted += c;
    }
    return quoted + "'";
}

std::string shell_words(std::span<const std::string> words) {
    std::string text;
    for (const auto& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
    return text;
}

}  // namespace mgplan
