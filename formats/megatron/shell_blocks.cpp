#include "formats/megatron/shell_blocks.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/megatron/shell_words.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::size_t kDeepestBlock = 64;

/// Steps from word to word and marks those in the position of a command's name.
class CommandWords {
public:
    explicit CommandWords(std::string_view text) : text_(text.substr(0, kLongestBlock)) {}

    /// Moves to the next word; false at the end.
    bool next() {
        skip_to_word();
        if (at_ >= text_.size()) return false;
        word_.begin = at_;
        in_command_position_ = expects_command_;
        pass_word();
        word_.end = at_;
        const std::string_view word = text();
        // A command follows these; arguments follow other words.
        static constexpr std::array kOpeners{"if", "then", "elif", "else", "while", "until", "do", "!", "{", "time"};
        expects_command_ = in_command_position_ && std::find(kOpeners.begin(), kOpeners.end(), word) != kOpeners.end();
        return true;
    }

    [[nodiscard]] std::string_view text() const { return word_.of(text_); }
    [[nodiscard]] TextPart word() const { return word_; }
    [[nodiscard]] bool in_command_position() const { return in_command_position_; }

private:
    void skip_to_word() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '\n') {
                expects_command_ = true;
                ++at_;
                skip_here_documents();
            } else if (is_blank(c)) {
                ++at_;
            } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
                at_ += 2;
            } else if (c == ';' || c == '&' || c == '|' || c == '(' || c == ')') {
                expects_command_ = true;
                ++at_;
            } else if (c == '#') {
                while (at_ < text_.size() && text_[at_] != '\n') ++at_;
            } else {
                return;
            }
        }
    }

    void pass_word() {
        const std::size_t start = at_;
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (is_blank(c) || c == ';' || c == '&' || c == '|' || c == '(' || c == ')') break;
            if (c == '\'' || c == '"')
                pass_quoted(c);
            else if (c == '\\')
                at_ += 2;
            else if (c == '`' || c == '$')
                at_ += std::max<std::size_t>(substitution_length(text_.substr(at_)), 1);
            else
                ++at_;
        }
        at_ = std::min(std::max(at_, start + 1), text_.size());
        note_here_document(text_.substr(start, at_ - start));
    }

    void pass_quoted(char quote) {
        for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
            if (quote == '"' && text_[at_] == '\\') ++at_;
        }
        at_ = std::min(at_ + 1, text_.size());
    }

    /// `<<EOF`: what follows the line up to EOF is a text.
    void note_here_document(std::string_view word) {
        const auto mark = word.find("<<");
        if (mark == std::string_view::npos || word.substr(mark).starts_with("<<<")) return;
        std::string end(word.substr(mark + 2));
        std::erase_if(end, [](char c) { return c == '\'' || c == '"' || c == '-'; });
        if (!end.empty()) here_documents_.push_back(std::move(end));
    }

    void skip_here_documents() {
        for (const std::string& end : std::exchange(here_documents_, {})) {
            while (at_ < text_.size()) {
                const std::size_t stop = std::min(text_.find('\n', at_), text_.size());
                std::string_view line = text_.substr(at_, stop - at_);
                line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
                at_ = std::min(stop + 1, text_.size());
                if (line == end) break;
            }
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
    TextPart word_;
    bool expects_command_ = true, in_command_position_ = false;
    std::vector<std::string> here_documents_;
};

/// The word that closes what `word` opens; empty for other words.
std::string_view closer_of(std::string_view word) {
    if (word == "if") return "fi";
    if (word == "case") return "esac";
    if (word == "while" || word == "until" || word == "for" || word == "select") return "done";
    return word == "{" ? std::string_view("}") : std::string_view();
}

/// Follows the statements that open and close; `outermost` are the words that belong to the first of them.
class OpenStatements {
public:
    /// True if the word, which is in command position, belongs to the outermost statement: it opened that, closed it, or no other is open.
    /// Nothing once they are nested too deeply.
    std::optional<bool> take(std::string_view word) {
        if (!open_.empty() && word == open_.back()) {
            open_.pop_back();
            return open_.empty();
        }
        if (const std::string_view closer = closer_of(word); !closer.empty()) {
            if (open_.size() >= kDeepestBlock) return std::nullopt;
            open_.push_back(closer);
            return open_.size() == 1;
        }
        return open_.size() == 1;
    }
    [[nodiscard]] bool closed() const { return open_.empty(); }

private:
    std::vector<std::string_view> open_;
};

}  // namespace

std::optional<ShellIf> if_statement(std::string_view text) {
    CommandWords words(text);
    if (!words.next() || words.text() != "if" || words.word().begin != 0) return std::nullopt;
    OpenStatements open;
    (void)open.take("if");
    ShellIf statement;
    statement.branches.push_back({{words.word().end, 0}, {}, false});
    bool in_test = true;
    while (words.next()) {
        if (!words.in_command_position()) continue;
        const auto own = open.take(words.text());
        if (!own) return std::nullopt;
        if (!*own) continue;
        ShellBranch& branch = statement.branches.back();
        const std::string_view word = words.text();
        if (word == "then" && in_test) {
            branch.test.end = words.word().begin;
            branch.body.begin = words.word().end;
            in_test = false;
        } else if ((word == "elif" || word == "else" || word == "fi") && !in_test) {
            branch.body.end = words.word().begin;
            statement.behind = words.word().end;
            if (word == "fi") return statement;
            if (branch.otherwise) return std::nullopt;
            in_test = word == "elif";
            statement.branches.push_back({{words.word().end, words.word().end}, {words.word().end, 0}, !in_test});
        } else if (word == "fi") {
            return std::nullopt;  // without then
        }
    }
    return std::nullopt;
}

namespace {

std::optional<ShellLoop> loop_statement(std::string_view text, std::string_view keyword) {
    CommandWords words(text);
    if (!words.next() || words.text() != keyword || words.word().begin != 0) return std::nullopt;
    OpenStatements open;
    (void)open.take(keyword);
    ShellLoop loop{{words.word().end, 0}, {}, 0};
    bool in_test = true;
    while (words.next()) {
        if (!words.in_command_position()) continue;
        const auto own = open.take(words.text());
        if (!own) return std::nullopt;
        if (!*own) continue;
        if (words.text() == "do" && in_test) {
            loop.test.end = words.word().begin;
            loop.body.begin = words.word().end;
            in_test = false;
        } else if (words.text() == "done") {
            if (in_test) return std::nullopt;
            loop.body.end = words.word().begin;
            loop.behind = words.word().end;
            return loop;
        }
    }
    return std::nullopt;
}

/// The step that an expression adds to a variable: i++, ++i, i--, i+=2.
std::optional<std::int64_t> step_of(std::string_view expression, std::string_view name) {
    for (const auto& [sign, step] : {std::pair(std::string_view("++"), 1), std::pair(std::string_view("--"), -1)}) {
        if (expression.starts_with(sign) && trimmed(expression.substr(2)) == name) return step;
        if (expression.ends_with(sign) && trimmed(expression.substr(0, expression.size() - 2)) == name) return step;
        const std::size_t equals = expression.find('=');
        if (equals == std::string_view::npos || equals == 0 || expression[equals - 1] != sign[0]) continue;
        if (trimmed(expression.substr(0, equals - 1)) != name) continue;
        const auto number = parse_integer(trimmed(expression.substr(equals + 1)));
        return number ? std::optional(step * std::clamp<std::int64_t>(*number, -1'000'000, 1'000'000)) : std::nullopt;
    }
    return std::nullopt;
}

}  // namespace

std::optional<ShellLoop> while_loop(std::string_view text) {
    return loop_statement(text, "while");
}
std::optional<ShellLoop> for_loop(std::string_view text) {
    return loop_statement(text, "for");
}

std::optional<ShellCount> shell_count(std::string_view head) {
    head = trimmed(head);
    if (head.ends_with(';')) head = trimmed(head.substr(0, head.size() - 1));
    if (!head.starts_with("((") || !head.ends_with("))")) return std::nullopt;
    const auto parts = split(head.substr(2, head.size() - 4), ';');
    if (parts.size() != 3) return std::nullopt;
    const std::string_view start = parts[0];
    const std::size_t equals = start.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    ShellCount count{std::string(trimmed(start.substr(0, equals))), std::string(trimmed(start.substr(equals + 1))), parts[1], 1};
    const auto step = step_of(trimmed(parts[2]), count.name);
    if (!step || count.name.empty() || !std::all_of(count.name.begin(), count.name.end(), is_name)) return std::nullopt;
    count.step = *step;
    return count;
}

std::optional<ShellFunction> function_definition(std::string_view text) {
    constexpr std::size_t kLongestName = 64;
    std::size_t at = 0;
    const auto skip = [&](auto belongs) {
        while (at < text.size() && belongs(text[at])) ++at;
    };
    const bool keyword = text.starts_with("function ");
    if (keyword) at = std::string_view("function ").size();
    skip([](char c) { return c == ' '; });
    const std::size_t start = at;
    skip([](char c) { return is_name(c) || c == '-'; });
    ShellFunction function{std::string(text.substr(start, std::min(at - start, kLongestName))), {}, 0};
    if (function.name.empty() || at - start > kLongestName) return std::nullopt;
    skip([](char c) { return c == ' '; });
    const bool parentheses = text.substr(at).starts_with("()");
    if (parentheses) at += 2;
    if (!parentheses && !keyword) return std::nullopt;
    skip(is_blank);
    if (at >= text.size() || text[at] != '{') return std::nullopt;
    CommandWords words(text.substr(at));
    OpenStatements open;
    function.body.begin = at + 1;
    while (words.next()) {
        if (!words.in_command_position()) continue;
        if (!open.take(words.text())) return std::nullopt;
        if (!open.closed()) continue;
        function.body.end = at + words.word().begin;
        function.behind = at + words.word().end;
        if (function.body.end < function.body.begin) return std::nullopt;  // "{" begins a word of its own
        return function;
    }
    return std::nullopt;
}

}  // namespace mgplan::formats
