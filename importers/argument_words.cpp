#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include "importers/megatron_arguments.hpp"
#include "plan/errors.hpp"

namespace mgplan::importers {
namespace {

constexpr std::size_t kValueLimit = 64U << 10U;  ///< of one variable: assignments that double each other stay bounded
constexpr std::size_t kWordLimit = 1U << 20U;
constexpr std::size_t kExpansionLimit = 1U << 20U;  ///< of all variables' values together: 16 KiB of "$A" are 5,000 times 64 KiB

bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Variables a script assigns, in the order of the script; nothing for values that only running it would tell.
class Variables {
public:
    void assign(const std::string& name, std::string value) {
        if (value.size() <= kValueLimit) values_[name] = std::move(value);
    }

    /// Replaces $NAME, ${NAME} and ${NAME:-default} as far as they are known; the others stay as they are.
    [[nodiscard]] std::string expand(std::string_view text) {
        std::string out;
        for (std::size_t at = 0; at < text.size() && out.size() <= kValueLimit && expanded_ <= kExpansionLimit;) {
            const auto reference = text[at] == '$' ? reference_at(text, at) : std::nullopt;
            if (reference && reference->value) {
                out += *reference->value;
                expanded_ += reference->value->size();
                at = reference->end;
            } else {
                out += text[at++];
            }
        }
        return out;
    }
    /// Whether the values that were put in are more than a command's may be.
    [[nodiscard]] bool overflowed() const { return expanded_ > kExpansionLimit; }
    [[nodiscard]] std::size_t expanded() const { return expanded_; }
    /// What was put in since then is no part of the command: it became the value of one variable.
    void take_back(std::size_t expanded_before) { expanded_ = expanded_before; }

private:
    struct Reference {
        std::size_t end;
        std::optional<std::string> value;
    };

    [[nodiscard]] std::optional<Reference> reference_at(std::string_view text, std::size_t dollar) const {
        std::size_t at = dollar + 1;
        const bool braces = at < text.size() && text[at] == '{';
        if (braces) ++at;
        const std::size_t start = at;
        while (at < text.size() && is_name(text[at])) ++at;
        const std::string name(text.substr(start, at - start));
        if (name.empty()) return std::nullopt;
        std::optional<std::string> value;
        if (const auto found = values_.find(name); found != values_.end()) value = found->second;
        if (!braces) return Reference{at, value};
        const auto close = text.find('}', at);
        if (close == std::string_view::npos) return std::nullopt;
        const std::string_view operation = text.substr(at, close - at);
        if (operation.empty()) return Reference{close + 1, value};
        if (operation.starts_with(":-") || operation.starts_with(":=")) {
            if (!value || value->empty()) value = std::string(operation.substr(2));
            return value->find('$') == std::string::npos ? std::optional(Reference{close + 1, value}) : std::nullopt;
        }
        return std::nullopt;
    }

    std::map<std::string, std::string> values_;
    std::size_t expanded_ = 0;  // bytes
};

/// Takes words out of text as a shell does: white space separates, quotes keep, a backslash before a line break
/// continues the line and takes any other character literally, # at the start of a word comments to the line's end.
class WordScanner {
public:
    WordScanner(std::string_view text, std::size_t at, Variables& variables, const std::string& where)
        : text_(text), at_(at), variables_(variables), where_(where) {}

    [[nodiscard]] std::size_t position() const { return at_; }
    void move_to(std::size_t at) { at_ = at; }

    /// Skips white space, continuations and comments; false at the end.
    bool skip_blanks() {
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

    /// The word here, with known variables replaced outside single quotes.
    std::string word() {
        std::string word, open;  // open: what stands outside single quotes and may hold variables
        const auto flush = [&] {
            word += variables_.expand(open);
            open.clear();
        };
        while (at_ < text_.size() && !is_blank(text_[at_])) {
            const char c = text_[at_];
            if (const std::size_t length = continuation_at(at_); length > 0) {
                at_ += length;
            } else if (c == '\'') {
                flush();
                const auto close = text_.find('\'', at_ + 1);
                if (close == std::string_view::npos) fail("a single quote (') is not closed");
                word += text_.substr(at_ + 1, close - at_ - 1);
                at_ = close + 1;
            } else if (c == '"') {
                flush();
                word += variables_.expand(double_quoted());
            } else if (c == '\\' && at_ + 1 < text_.size()) {
                flush();
                word += text_[at_ + 1];
                at_ += 2;
            } else {
                open += c;
                ++at_;
            }
        }
        flush();
        if (variables_.overflowed()) fail("its variables, put in, are more than 1 MiB; give a command with fewer or shorter ones");
        if (word.size() > kWordLimit) fail("a word of more than 1 MiB");
        return word;
    }

    /// The contents of the double quotes that start here; moves behind them.
    std::string double_quoted() {
        std::string inside;
        const std::size_t start = at_++;
        for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (const std::size_t length = continuation_at(at_); length > 0) {
                at_ += length - 1;
                inside += ' ';
            } else if (text_[at_] == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '"' || text_[at_ + 1] == '\\')) {
                inside += text_[++at_];
            } else {
                inside += text_[at_];
            }
        }
        if (at_ >= text_.size()) {
            at_ = start;
            fail("a double quote (\") is not closed");
        }
        ++at_;
        return inside;
    }

    [[noreturn]] void fail(std::string_view reason) const {
        const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
        throw ConfigError(fmt::format("{}:{}: {}", where_, line, reason));
    }

private:
    [[nodiscard]] std::size_t continuation_at(std::size_t at) const {
        if (text_[at] != '\\') return 0;
        // Blanks behind the backslash are a frequent slip; they mean the same.
        std::size_t end = at + 1;
        while (end < text_.size() && (text_[end] == '\r' || text_[end] == ' ' || text_[end] == '\t')) ++end;
        if (end < text_.size() && text_[end] == '\n') return end + 1 - at;
        return end >= text_.size() ? end - at : 0;
    }

    std::string_view text_;
    std::size_t at_;
    Variables& variables_;
    const std::string& where_;
};

/// Words of a text that is nothing but flags and values. With `at_end`, stops there.
void add_words(std::vector<std::string>& words, std::string_view text, Variables& variables, const std::string& where) {
    WordScanner scanner(text, 0, variables, where);
    while (scanner.skip_blanks()) {
        std::string word = scanner.word();
        if (word.empty()) continue;  // a variable that holds nothing
        // "--vocab-size 128256" quoted as one: an array expanded without quotes splits it again. So does a variable.
        if (word.starts_with("--") && word.find_first_of(" \t\n") != std::string::npos) {
            Variables none;
            WordScanner again(word, 0, none, where);
            while (again.skip_blanks()) words.push_back(again.word());
        } else {
            words.push_back(std::move(word));
        }
    }
}

/// Whether the last character closes an array: parentheses inside a word (layout strings) pair up.
bool ends_array(std::string_view word) {
    return word.ends_with(')') && std::count(word.begin(), word.end(), ')') > std::count(word.begin(), word.end(), '(');
}

/// What a shell script says: variables, and the flags in its arrays and quoted lists.
struct Script {
    Variables variables;
    std::vector<std::string> flags;

    /// Whether the arrays describe a model, and not just some options beside the command.
    [[nodiscard]] bool names_model() const {
        return std::any_of(flags.begin(), flags.end(),
                           [](const std::string& word) { return word.starts_with("--num-layers") || word.starts_with("--hidden-size"); });
    }
};

/// Reads `NAME=( … )` from behind the opening parenthesis.
void read_array(WordScanner& scanner, Script& script, std::string_view text, const std::string& where) {
    std::vector<std::string> words;
    bool closed = false;
    while (!closed && scanner.skip_blanks()) {
        const std::size_t start = scanner.position();
        const std::string plain = scanner.word();
        const std::string_view raw = text.substr(start, scanner.position() - start);
        closed = ends_array(raw);
        if (raw == ")") break;
        std::string word = closed ? plain.substr(0, plain.size() - 1) : plain;
        if (word.starts_with("--") && word.find(' ') != std::string::npos)
            add_words(words, word, script.variables, where);
        else
            words.push_back(std::move(word));
    }
    // "${OTHER[@]}": the other array counts by itself.
    std::erase_if(words,
                  [](const std::string& word) { return word.find("[@]") != std::string::npos || word.find("[*]") != std::string::npos; });
    const bool flags = std::any_of(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("--"); });
    if (!flags) return;  // data paths and the like
    script.flags.insert(script.flags.end(), words.begin(), words.end());
}

/// At the start of an assignment, its name and where its value begins.
struct Assignment {
    std::string name;
    std::size_t value_at;
};

std::optional<Assignment> assignment_at(std::string_view text, std::size_t at) {
    for (const std::string_view keyword : {"export ", "local ", "readonly ", "declare -a ", "declare "}) {
        if (text.substr(at).starts_with(keyword)) {
            at += keyword.size();
            break;
        }
    }
    const std::size_t start = at;
    while (at < text.size() && is_name(text[at])) ++at;
    if (at == start || std::isdigit(static_cast<unsigned char>(text[start])) != 0) return std::nullopt;
    const std::string name(text.substr(start, at - start));
    if (at < text.size() && text[at] == '+') ++at;
    if (at >= text.size() || text[at] != '=') return std::nullopt;
    return Assignment{name, at + 1};
}

/// Walks the lines of a script. Everything but assignments is passed over, unbalanced quotes in other lines included.
Script read_script(std::string_view text, const std::string& where) {
    Script script;
    std::size_t at = 0;
    while (at < text.size()) {
        while (at < text.size() && (is_blank(text[at]) || text[at] == ';')) ++at;
        const auto assignment = assignment_at(text, at);
        if (!assignment) {
            const auto line_end = text.find('\n', at);
            at = line_end == std::string_view::npos ? text.size() : line_end + 1;
            continue;
        }
        WordScanner scanner(text, assignment->value_at, script.variables, where);
        if (assignment->value_at < text.size() && text[assignment->value_at] == '(') {
            scanner.move_to(assignment->value_at + 1);
            read_array(scanner, script, text, where);
        } else if (text.substr(assignment->value_at).starts_with("$(")) {
            // The output of a command is known only to those who run it.
            const auto line_end = text.find('\n', assignment->value_at);
            scanner.move_to(line_end == std::string_view::npos ? text.size() : line_end);
        } else if (assignment->value_at < text.size() && !is_blank(text[assignment->value_at]) && text[assignment->value_at] != ';') {
            const std::size_t before = script.variables.expanded();
            std::string value = scanner.word();
            while (value.ends_with(';')) value.pop_back();
            const auto first = value.find_first_not_of(" \t\r\n");
            if (first != std::string::npos && value.substr(first).starts_with("--")) {
                // Older scripts keep their flags in one quoted text.
                std::vector<std::string> words;
                add_words(words, value, script.variables, where);
                script.flags.insert(script.flags.end(), words.begin(), words.end());
                script.variables.assign(assignment->name, "");
            } else {
                script.variables.take_back(before);
                if (value.find('$') == std::string::npos && value.find('`') == std::string::npos)
                    script.variables.assign(assignment->name, value);
            }
        }
        at = std::max(scanner.position(), assignment->value_at);
    }
    return script;
}

bool has_model_args(std::string_view text) {
    for (std::size_t at = text.find("MODEL_ARGS"); at != std::string_view::npos; at = text.find("MODEL_ARGS", at + 1)) {
        std::size_t end = at + std::string_view("MODEL_ARGS").size();
        const bool line_start = at == 0 || text[at - 1] == '\n' || text[at - 1] == '"' || text[at - 1] == '\'';
        if (end < text.size() && (text[end] == '"' || text[end] == '\'')) ++end;
        if (line_start && end < text.size() && text[end] == ':') return true;
    }
    return false;
}

/// One entry of MODEL_ARGS: true (or nothing) a bare flag, false none, anything else its values.
void add_yaml_entry(std::vector<std::string>& words, const std::string& flag, const YAML::Node& value, const std::string& where) {
    Variables none;
    if (value.IsNull()) {
        words.push_back(flag);
    } else if (value.IsScalar()) {
        const std::string& text = value.Scalar();
        if (text == "false" || text == "False") return;
        words.push_back(flag);
        if (text != "true" && text != "True") add_words(words, text, none, where);
    } else if (value.IsSequence()) {
        words.push_back(flag);
        for (const auto& item : value) {
            if (!item.IsScalar()) throw ConfigError(fmt::format("{}: {} holds a nested list; give plain values", where, flag));
            words.push_back(item.Scalar());
        }
    } else {
        throw ConfigError(fmt::format("{}: {} holds a mapping; give a value, true or false", where, flag));
    }
}

std::vector<std::string> yaml_words(std::string_view text, const std::string& where) {
    std::vector<std::string> words;
    try {
        const YAML::Node root = YAML::Load(std::string(text));
        if (!root.IsMap()) throw ConfigError(fmt::format("{}: no YAML mapping; write MODEL_ARGS: with one --flag: value a line", where));
        const YAML::Node arguments = root["MODEL_ARGS"];
        if (!arguments || !arguments.IsMap())
            throw ConfigError(fmt::format("{}: MODEL_ARGS is no mapping; write one --flag: value a line below it", where));
        Problems problems;
        for (const auto& entry : arguments) {
            if (!entry.first.IsScalar()) {
                problems.add("{}: MODEL_ARGS has a key that is no flag; write --flag: value", where);
                continue;
            }
            std::string flag = entry.first.Scalar();
            if (!flag.starts_with("--")) flag = "--" + flag;
            try {
                add_yaml_entry(words, flag, entry.second, where);
            } catch (const ConfigError& error) {
                problems.absorb(error);
            }
        }
        problems.throw_if_any();
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", where, error.mark.line + 1, error.mark.column + 1, error.msg));
    }
    return words;
}

}  // namespace

std::vector<std::string> argument_words(std::string_view text, const std::string& where) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
    if (has_model_args(text)) {
        // A shell script may call its array MODEL_ARGS too, but followed by "=".
        return yaml_words(text, where);
    }
    Script script = read_script(text, where);
    if (script.names_model()) return std::move(script.flags);
    // A plain file of flags, or a script that writes them behind its command; quoted lists it refers to come last.
    std::vector<std::string> words;
    add_words(words, text, script.variables, where);
    words.insert(words.end(), script.flags.begin(), script.flags.end());
    return words;
}

}  // namespace mgplan::importers
