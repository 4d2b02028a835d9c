#include "formats/megatron/shell_words.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/core.h>

#include "formats/megatron/shell_arithmetic.hpp"
#include "formats/megatron/shell_test.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::size_t kValueLimit = 64U << 10U;  ///< of one variable: assignments that double each other stay bounded
constexpr std::size_t kWordLimit = 1U << 20U;
constexpr std::size_t kExpansionLimit = 1U << 20U;  ///< of all variables' values together: 16 KiB of "$A" are 5,000 times 64 KiB

/// 1, 2, … of $1, $2, …
bool is_argument(std::string_view name) {
    return !name.empty() && name[0] != '0' && name.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A value without what a pattern fits at its front (#) or its end (%): the shortest such part, or with the sign twice the longest.
/// Nothing for patterns of more than * and ?, and for what holds variables.
std::optional<std::string> without_pattern(const std::string& value, std::string_view operation) {
    constexpr std::size_t kLongest = 1024;
    const bool front = operation[0] == '#', longest = operation.size() > 1 && operation[1] == operation[0];
    const std::string_view pattern = operation.substr(longest ? 2 : 1);
    if (value.size() > kLongest || pattern.size() > kLongest || pattern.find_first_of("$`\"'\\") != std::string_view::npos)
        return std::nullopt;
    for (std::size_t i = 0; i <= value.size(); ++i) {
        const std::size_t length = longest ? value.size() - i : i;
        const std::string_view all = value, part = front ? all.substr(0, length) : all.substr(all.size() - length);
        const auto fits = fits_pattern(part, pattern);
        if (!fits) return std::nullopt;
        if (*fits) return std::string(front ? all.substr(length) : all.substr(0, all.size() - length));
    }
    return value;
}

}  // namespace

bool is_path_with_unknown_beginning(std::string_view value) {
    const auto slash = value.find('/', value.starts_with("${") ? std::min(value.find('}'), value.size()) : 0);
    if (!value.starts_with('$') || slash == std::string_view::npos) return false;
    const std::string_view last = value.substr(value.rfind('/') + 1);
    return value.substr(0, slash).find('(') == std::string_view::npos && value.find_first_of("$` \t\n", 1) == std::string_view::npos &&
           last.find_first_not_of("0123456789") != std::string_view::npos && !last.starts_with('-');
}

void Variables::assign(const std::string& name, std::string value, bool perhaps) {
    if (fixed(name)) return;
    if (value.size() > kValueLimit) return forget(name, "its value is longer than 64 KiB");
    if (perhaps)
        perhaps_.insert(name);
    else
        perhaps_.erase(name);
    unknown_.erase(name);
    derived_.erase(name);
    values_[name] = std::move(value);
}

void Variables::fix(const std::string& name, std::string value) {
    assign(name, std::move(value));
    fixed_.insert(name);
}

void Variables::forget(const std::string& name, const std::string& why) {
    if (fixed(name)) return;
    values_.erase(name);
    if (why.empty())
        unknown_.erase(name);
    else
        unknown_[name] = why;
}

std::optional<std::string> Variables::value(const std::string& name) const {
    if (arguments_ && is_argument(name)) {
        const auto number = parse_integer(name);
        if (!number || *number < 1 || *number > std::ssize(*arguments_)) return std::nullopt;
        return (*arguments_)[static_cast<std::size_t>(*number - 1)];
    }
    const auto found = values_.find(name);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> Variables::why_unknown(const std::string& name) const {
    const auto found = unknown_.find(name);
    return found == unknown_.end() ? std::nullopt : std::optional(found->second);
}

bool Variables::overflowed() const {
    return expanded_ > kExpansionLimit;
}

std::string Variables::expand(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size() && out.size() <= kValueLimit && expanded_ <= kExpansionLimit;) {
        const auto reference = text[at] == '$' ? reference_at(text, at) : std::nullopt;
        if (reference && reference->value) {
            out += *reference->value;
            expanded_ += reference->value->size();
            if (perhaps_.contains(reference->name)) doubtful_.insert(reference->name);
            count_doubtful_use(reference->name);
            at = reference->end;
        } else {
            out += text[at++];
        }
    }
    return out;
}

std::optional<Variables::Reference> Variables::arithmetic_at(std::string_view text, std::size_t dollar) {
    const std::size_t length = substitution_length(text.substr(dollar));
    const std::string_view whole = text.substr(dollar, length);
    if (!whole.starts_with("$((") || !whole.ends_with("))")) return std::nullopt;
    const auto number = shell_arithmetic(whole.substr(3, whole.size() - 5), [this](const std::string& name) {
        if (perhaps_.contains(name)) doubtful_.insert(name);
        count_doubtful_use(name);
        return value(name);
    });
    if (!number) return std::nullopt;
    return Reference{dollar + length, "", std::to_string(*number)};
}

/// $#, ${#}, and $1 to $9, which digits may follow.
std::optional<Variables::Reference> Variables::argument_at(std::string_view text, std::size_t dollar) const {
    const std::string_view rest = text.substr(dollar + 1);
    for (const std::string_view count : {"#", "{#}"}) {
        if (rest.starts_with(count) && arguments_) return Reference{dollar + 1 + count.size(), "#", std::to_string(arguments_->size())};
    }
    if (rest.empty() || !is_argument(rest.substr(0, 1))) return std::nullopt;
    const std::string name(rest.substr(0, 1));
    return Reference{dollar + 2, name, arguments_ ? std::optional(value(name).value_or("")) : value(name)};
}

std::optional<Variables::Reference> Variables::reference_at(std::string_view text, std::size_t dollar) {
    std::size_t at = dollar + 1;
    if (text.substr(at).starts_with("((")) return arithmetic_at(text, dollar);
    if (auto argument = argument_at(text, dollar)) return argument;
    const bool braces = at < text.size() && text[at] == '{';
    if (braces) ++at;
    const std::size_t start = at;
    while (at < text.size() && is_name(text[at])) ++at;
    const std::string name(text.substr(start, at - start));
    if (name.empty()) return std::nullopt;
    std::optional<std::string> found = value(name);
    if (!braces) return Reference{at, name, found};
    // An argument that was not given is empty, where the arguments are known.
    if (!found && arguments_ && is_argument(name) && text.substr(at).starts_with("}")) found = "";
    const std::size_t length = substitution_length(text.substr(dollar));
    if (length == 0) return std::nullopt;
    const std::size_t close = dollar + length - 1;
    if (close < at) return std::nullopt;
    const std::string_view operation = text.substr(at, close - at);
    if (operation.empty()) return Reference{close + 1, name, found};
    const bool colon = operation.starts_with(":");
    const std::string_view kind = operation.substr(colon ? 1 : 0);
    if (found && !colon && (kind.starts_with("#") || kind.starts_with("%"))) {
        const auto rest = without_pattern(*found, kind);
        return rest ? std::optional(Reference{close + 1, name, rest}) : std::nullopt;
    }
    if (found && !colon && (kind == ",," || kind == "^^")) {
        std::transform(found->begin(), found->end(), found->begin(),
                       [&kind](unsigned char c) { return static_cast<char>(kind == ",," ? std::tolower(c) : std::toupper(c)); });
        return Reference{close + 1, name, found};
    }
    // "${X:?why}" ends the script where X is not set.
    if (kind.starts_with("?") && found && (!colon || !found->empty())) return Reference{close + 1, name, found};
    if (!kind.starts_with("-") && !kind.starts_with("=")) return std::nullopt;
    const bool unset = !found || (colon && found->empty());
    // A variable that a command sets is set, to what is not known.
    if (unset && why_unknown(name)) return std::nullopt;
    if (unset) {
        constexpr int kDeepest = 32;
        if (depth_ >= kDeepest) return std::nullopt;
        ++depth_;
        std::string otherwise = expand(kind.substr(1));
        --depth_;
        if (otherwise.size() >= 2 && (otherwise[0] == '"' || otherwise[0] == '\'') && otherwise.back() == otherwise[0])
            otherwise = otherwise.substr(1, otherwise.size() - 2);
        if (otherwise.find_first_of("$`") != std::string::npos && !is_path_with_unknown_beginning(otherwise)) return std::nullopt;
        if (kind[0] == '=') assign(name, otherwise);
        found = std::move(otherwise);
    }
    return Reference{close + 1, name, found};
}

std::size_t substitution_length(std::string_view text) {
    if (text.starts_with('`')) {
        const auto close = text.find('`', 1);
        return close == std::string_view::npos ? 0 : close + 1;
    }
    if (!text.starts_with("$(") && !text.starts_with("${")) return 0;
    constexpr std::size_t kDeepest = 64;  // also keeps a text of nothing but openings from being read once for each of them
    const char opens = text[1], closes = opens == '(' ? ')' : '}';
    std::size_t depth = 0;
    for (std::size_t at = 1; at < text.size(); ++at) {
        if (text[at] == '\\')
            ++at;
        else if (text[at] == opens && ++depth > kDeepest)
            return 0;
        else if (text[at] == closes && --depth == 0)
            return at + 1;
    }
    return 0;
}

bool WordScanner::skip_blanks() {
    while (at_ < text_.size()) {
        if (is_blank(text_[at_])) {
            ++at_;
        } else if (const std::size_t length = continuation_at(at_); length > 0) {
            at_ += length;
        } else if (text_[at_] == '#') {
            while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        } else {
            return true;
        }
    }
    return false;
}

std::string WordScanner::word() {
    std::string word, open;  // open: text outside quotes, which may hold variables
    bool quoted = false, has_command = false;
    splits_ = false;
    const auto flush = [&] {
        const std::string value = variables_.expand(open);
        splits_ |= std::any_of(value.begin(), value.end(), is_blank);
        word += value;
        open.clear();
    };
    while (at_ < text_.size() && !is_blank(text_[at_])) {
        const char c = text_[at_];
        if (const std::size_t skipped = continuation_at(at_); skipped > 0) {
            at_ += skipped;
        } else if (c == '\'') {
            flush();
            quoted = true;
            const auto close = text_.find('\'', at_ + 1);
            if (close == std::string_view::npos) fail("a single quote (') is not closed; close it or take it out");
            word += text_.substr(at_ + 1, close - at_ - 1);
            at_ = close + 1;
        } else if (c == '"') {
            flush();
            quoted = true;
            word += variables_.expand(double_quoted());
        } else if (c == '\\' && at_ + 1 < text_.size()) {
            flush();
            word += text_[at_ + 1];
            at_ += 2;
        } else if (c == '`' || text_.substr(at_, 2) == "$(" || text_.substr(at_, 2) == "${") {
            has_command |= !text_.substr(at_).starts_with("${");
            const std::size_t length = std::max<std::size_t>(substitution_length(text_.substr(at_, kValueLimit)), 1);
            open += text_.substr(at_, length);
            at_ += length;
        } else {
            open += c;
            ++at_;
        }
    }
    flush();
    splits_ = splits_ && !quoted && !has_command;
    if (variables_.overflowed()) fail("its variables, put in, are more than 1 MiB; give a command with fewer or shorter ones");
    if (word.size() > kWordLimit) fail("a word of more than 1 MiB");
    return word;
}

std::string WordScanner::double_quoted() {
    std::string inside;
    const std::size_t start = at_++;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
        if (const std::size_t length = continuation_at(at_); length > 0) {
            at_ += length - 1;
            inside += ' ';
        } else if (text_[at_] == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '"' || text_[at_ + 1] == '\\')) {
            inside += text_[++at_];
        } else if (const std::size_t command = text_.substr(at_, 2) == "$(" ? substitution_length(text_.substr(at_, kValueLimit)) : 0;
                   command > 0) {
            inside += text_.substr(at_, command);  // with quotes of its own
            at_ += command - 1;
        } else {
            inside += text_[at_];
        }
    }
    if (at_ >= text_.size()) {
        at_ = start;
        fail("a double quote (\") is not closed; close it or take it out");
    }
    ++at_;
    return inside;
}

void WordScanner::fail(std::string_view reason) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
    throw ConfigError(fmt::format("{}:{}: {}", where_, line, reason));
}

std::size_t WordScanner::continuation_at(std::size_t at) const {
    if (text_[at] != '\\') return 0;
    // Blanks after the backslash are a frequent slip; they mean the same.
    std::size_t end = at + 1;
    while (end < text_.size() && (text_[end] == '\r' || text_[end] == ' ' || text_[end] == '\t')) ++end;
    if (end < text_.size() && text_[end] == '\n') return end + 1 - at;
    return end >= text_.size() ? end - at : 0;
}

void add_words(std::vector<std::string>& words, std::string_view text, Variables& variables, const std::string& where) {
    WordScanner scanner(text, 0, variables, where);
    while (scanner.skip_blanks()) {
        std::string word = scanner.word();
        if (word.empty()) continue;  // a variable that holds nothing
        // "--vocab-size 128256" quoted as one: an array expanded without quotes splits it again. So does a variable.
        if (scanner.splits() || (word.starts_with("--") && word.find_first_of(" \t\n") != std::string::npos)) {
            Variables none;
            WordScanner again(word, 0, none, where);
            while (again.skip_blanks()) words.push_back(again.word());
        } else {
            words.push_back(std::move(word));
        }
    }
}

}  // namespace mgplan::formats
