#pragma once
// Words as a shell makes them out of text, with the variables whose values are known.

#include <cctype>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mgplan::formats {

[[nodiscard]] inline bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v';
}

[[nodiscard]] inline bool is_name(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// True for a path of which only the beginning is not known: "${HOME_OF_DATA}/models/Qwen3-8B", whose last parts name a model.
[[nodiscard]] bool is_path_with_unknown_beginning(std::string_view value);

/// Variables a script assigns, in the order of the script; nothing for values that only a run would reveal.
class Variables {
public:
    /// `perhaps`: the script assigns it under a condition.
    void assign(const std::string& name, std::string value, bool perhaps = false);
    /// Its value is not known from here on; `why` says so in words ("line 4 sets it by a command"), "" for a variable that is not set.
    void forget(const std::string& name, const std::string& why = "");
    /// Fixes a variable's value whatever the script assigns to it.
    void fix(const std::string& name, std::string value);
    [[nodiscard]] bool fixed(const std::string& name) const { return fixed_.contains(name); }
    /// Sets $1, $2, … and $#; nothing: they are not known.
    void set_arguments(std::optional<std::vector<std::string>> words) { arguments_ = std::move(words); }
    [[nodiscard]] const std::optional<std::vector<std::string>>& arguments() const { return arguments_; }
    [[nodiscard]] bool known(const std::string& name) const { return values_.contains(name); }
    [[nodiscard]] std::optional<std::string> value(const std::string& name) const;
    /// Its value where the script assigns it under no condition.
    [[nodiscard]] std::optional<std::string> certain(const std::string& name) const {
        return perhaps_.contains(name) ? std::nullopt : value(name);
    }
    /// The reason why the value is not known; nothing for variables that are known, and for those that are set nowhere.
    [[nodiscard]] std::optional<std::string> why_unknown(const std::string& name) const;

    /// Replaces $NAME, ${NAME}, ${NAME:-default} and $((arithmetic)) as far as they are known; the others stay as they are.
    /// ${NAME:=default} assigns, too.
    [[nodiscard]] std::string expand(std::string_view text);

    /// Counts `bytes` that were substituted from elsewhere (lists of words).
    void put_in(std::size_t bytes) { expanded_ += bytes; }
    /// True if more bytes were substituted than a command may hold.
    [[nodiscard]] bool overflowed() const;
    [[nodiscard]] std::size_t expanded() const { return expanded_; }
    /// Uncounts the bytes substituted since then: they became the value of one variable and are no part of the command.
    void take_back(std::size_t expanded_before) { expanded_ = expanded_before; }
    /// Variables whose value was substituted somewhere and hangs on a condition of the script.
    [[nodiscard]] const std::set<std::string>& doubtful() const { return doubtful_; }
    /// Number of substitutions so far of values that hang on a condition, themselves or by what they were made of.
    [[nodiscard]] std::size_t doubtful_uses() const { return doubtful_uses_; }
    void count_doubtful_use(const std::string& name) { doubtful_uses_ += perhaps_.contains(name) || derived_.contains(name) ? 1 : 0; }
    void count_doubtful_use() { ++doubtful_uses_; }
    /// The value of a variable or list was made of values that hang on a condition, if `doubtful_uses` was less before.
    void derive(const std::string& name, std::size_t doubtful_uses_before) {
        if (doubtful_uses_ != doubtful_uses_before) derived_.insert(name);
    }

private:
    struct Reference {
        std::size_t end;
        std::string name;  ///< "" for arithmetic
        std::optional<std::string> value;
    };
    [[nodiscard]] std::optional<Reference> reference_at(std::string_view text, std::size_t dollar);
    [[nodiscard]] std::optional<Reference> arithmetic_at(std::string_view text, std::size_t dollar);
    [[nodiscard]] std::optional<Reference> argument_at(std::string_view text, std::size_t dollar) const;

    std::map<std::string, std::string> values_;
    std::map<std::string, std::string> unknown_;  // why
    int depth_ = 0;                               // of defaults that hold variables with defaults
    std::set<std::string> perhaps_, doubtful_, fixed_, derived_;
    std::optional<std::vector<std::string>> arguments_;
    std::size_t expanded_ = 0;  // bytes
    std::size_t doubtful_uses_ = 0;
};

/// The number of characters of the $(…), $((…)), ${…} or `…` that starts at the front; 0 where none does, or it stays open.
[[nodiscard]] std::size_t substitution_length(std::string_view text);

/// Takes words out of text as a shell does: white space separates, quotes keep, a backslash before a line break
/// continues the line and takes any other character literally, # at the start of a word comments to the line's end, $(…) and `…` are kept
/// whole.
class WordScanner {
public:
    WordScanner(std::string_view text, std::size_t at, Variables& variables, const std::string& where)
        : text_(text), at_(at), variables_(variables), where_(where) {}

    [[nodiscard]] std::size_t position() const { return at_; }
    void move_to(std::size_t at) { at_ = at; }

    /// Skips white space, continuations and comments; false at the end.
    bool skip_blanks();

    /// The word here, with known variables replaced outside single quotes. Throws ConfigError for quotes that stay open and for
    /// variables that grow without end.
    std::string word();

    /// True if a shell makes several words of what word() returned last: an unquoted variable in it holds blanks.
    [[nodiscard]] bool splits() const { return splits_; }

    [[noreturn]] void fail(std::string_view reason) const;

private:
    std::string double_quoted();  // the contents of the double quotes that start here; moves past them
    [[nodiscard]] std::size_t continuation_at(std::size_t at) const;

    std::string_view text_;
    std::size_t at_;
    Variables& variables_;
    const std::string& where_;
    bool splits_ = false;
};

/// Appends the words of a text that is nothing but flags and values.
void add_words(std::vector<std::string>& words, std::string_view text, Variables& variables, const std::string& where);

}  // namespace mgplan::formats
