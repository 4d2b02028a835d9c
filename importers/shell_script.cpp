#include "importers/shell_script.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "importers/megatron_flags.hpp"
#include "importers/script_surroundings.hpp"
#include "importers/shell_case.hpp"
#include "importers/shell_words.hpp"
#include "plan/errors.hpp"

namespace mgplan::importers {
namespace {

using Words = std::vector<std::string>;

bool names_model(const Words& words) {
    return std::any_of(words.begin(), words.end(),
                       [](const std::string& word) { return word.starts_with("--num-layers") || word.starts_with("--hidden-size"); });
}

bool has_flags(const Words& words) {
    return std::any_of(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("--"); });
}

/// Whether the last character closes an array: parentheses inside a word (layout strings) pair up.
bool ends_array(std::string_view word) {
    return word.ends_with(')') && std::count(word.begin(), word.end(), ')') > std::count(word.begin(), word.end(), '(');
}

/// At the start of an assignment, its name, whether it appends and where its value begins.
struct Assignment {
    std::string name;
    bool appends;
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
    const bool appends = at < text.size() && text[at] == '+';
    if (appends) ++at;
    if (at >= text.size() || text[at] != '=') return std::nullopt;
    return Assignment{name, appends, at + 1};
}

/// "$NAME", "${NAME}", "${NAME[@]}", "${NAME[*]}", also with ":-" and a default; nothing for any other word.
struct ListReference {
    std::string name;
    std::string otherwise;
    bool subscript, has_default;
};

std::optional<ListReference> list_reference(std::string_view word) {
    if (word == "$@" || word == "$*" || word == "${@}" || word == "${*}")
        return ListReference{"", "", true, true};  // the script's own arguments
    if (!word.starts_with('$')) return std::nullopt;
    word.remove_prefix(1);
    if (word.starts_with('{')) {
        if (!word.ends_with('}')) return std::nullopt;
        word = word.substr(1, word.size() - 2);
    }
    std::size_t at = 0;
    while (at < word.size() && is_name(word[at])) ++at;
    ListReference found{std::string(word.substr(0, at)), "", false, false};
    word.remove_prefix(at);
    if (word.starts_with("[@]") || word.starts_with("[*]")) {
        found.subscript = true;
        word.remove_prefix(3);
    }
    if (word.starts_with(":-") || word.starts_with(":=")) {
        found.otherwise = word.substr(2);
        found.has_default = true;
        word = {};
    }
    return word.empty() && !found.name.empty() ? std::optional(found) : std::nullopt;
}

/// Reads a script from top to bottom. Everything but assignments and commands is passed over, unbalanced quotes in other lines included.
class ScriptReader {
public:
    ScriptReader(std::string_view text, const std::string& where, const std::string& folder) : text_(text), where_(where), folder_(folder) {
        for (const auto& [name, value] : slurm_variables(text)) variables_.assign(name, value);
    }

    ArgumentWords read() {
        read_statements();
        if (names_model(command_)) return finish(command_);
        if (names_model(listed_)) {
            // Whoever takes the lists may take others that a sourced file sets.
            ArgumentWords found = finish(listed_);
            if (!not_sourced_.empty())
                found.missing.push_back(
                    fmt::format("{} runs no command with its flags, and sources what is not at hand and may set more of them ({}); put the "
                                "file beside it, or give the command as it runs",
                                where_, fmt::join(not_sourced_, "; ")));
            return found;
        }
        // A plain file of flags, or a script whose command is no Python file.
        Words words;
        add_words(words, text_, variables_, where_);
        return finish(spliced(words));
    }

private:
    void read_statements() {
        while (at_ < text_.size()) {
            while (at_ < text_.size() && (is_blank(text_[at_]) || text_[at_] == ';')) ++at_;
            if (at_ >= text_.size() || skip_keyword()) continue;
            if (const auto assignment = assignment_at(text_, at_))
                assign(*assignment);
            else
                pass_line();
        }
    }

    /// Reads a sourced file in the place where it is sourced.
    void read_sourced(const std::string& path) {
        constexpr std::size_t kMostFiles = 32;
        if (sets_no_flags(path)) return;
        auto found = sourced_.size() < kMostFiles ? sourced_file(path, folder_) : std::nullopt;
        if (!found) {
            not_sourced_.push_back(fmt::format("line {}: {}", line_number(), path.substr(0, 80)));
            return;
        }
        sourced_.push_back(std::move(*found));
        const std::string_view outer = std::exchange(text_, sourced_.back());
        const std::size_t outer_at = std::exchange(at_, 0);
        read_statements();
        text_ = outer;
        at_ = outer_at;
    }

    [[nodiscard]] std::int64_t line_number() const {
        return 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
    }

    /// Words that stand before others on their line: `then NAME=…`.
    bool skip_keyword() {
        for (const std::string_view keyword : {"then", "else", "do"}) {
            const std::size_t end = at_ + keyword.size();
            if (text_.substr(at_).starts_with(keyword) && end < text_.size() && is_blank(text_[end])) {
                at_ = end;
                return true;
            }
        }
        return false;
    }

    void assign(const Assignment& assignment) {
        WordScanner scanner(text_, assignment.value_at, variables_, where_);
        const std::string_view value = text_.substr(assignment.value_at);
        if (value.starts_with('(')) {
            scanner.move_to(assignment.value_at + 1);
            keep_list(assignment, array(scanner));
        } else if (!value.empty() && !is_blank(value[0]) && value[0] != ';') {
            assign_text(assignment, scanner);
        } else if (!assignment.appends) {
            lists_.erase(assignment.name);
            variables_.assign(assignment.name, "", depth_ > 0);
        }
        at_ = std::max(scanner.position(), assignment.value_at);
    }

    void assign_text(const Assignment& assignment, WordScanner& scanner) {
        const std::size_t before = variables_.expanded();
        std::string value = scanner.word();
        while (value.ends_with(';')) value.pop_back();
        Words words;
        if (value.find("--") != std::string::npos || value.find('$') != std::string::npos) {
            Variables none;
            add_words(words, value, none, where_);
        }
        const bool known = !words.empty() && (words.front().starts_with("--") || is_list(words.front()));
        if (known) {
            // Older scripts keep their flags in one quoted text.
            keep_list(assignment, words);
            return;
        }
        take_command(value);  // and some their command: CMD="torchrun … pretrain_gpt.py $ARGS"
        variables_.take_back(before);
        lists_.erase(assignment.name);
        if (value.find('$') == std::string::npos && value.find('`') == std::string::npos) {
            const auto old = assignment.appends ? variables_.value(assignment.name) : std::string();
            if (old)
                variables_.assign(assignment.name, *old + value, depth_ > 0);
            else
                variables_.forget(assignment.name, fmt::format("line {} appends to what is not known", line_number()));
            return;
        }
        const bool command = value.find('`') != std::string::npos || value.find("$(") != value.find("$((");
        variables_.forget(assignment.name, fmt::format("line {} sets it {}", line_number(),
                                                       command ? "by a command, which is not run" : "from what the file does not set"));
    }

    /// The words from behind an array's opening parenthesis.
    Words array(WordScanner& scanner) {
        Words words;
        bool closed = false;
        while (!closed && scanner.skip_blanks()) {
            const std::size_t start = scanner.position();
            const std::string plain = scanner.word();
            const std::string_view raw = text_.substr(start, scanner.position() - start);
            closed = ends_array(raw);
            if (raw == ")") break;
            std::string word = closed ? plain.substr(0, plain.size() - 1) : plain;
            if (word.starts_with("--") && word.find(' ') != std::string::npos)
                add_words(words, word, variables_, where_);
            else
                words.push_back(std::move(word));
        }
        return words;
    }

    [[nodiscard]] bool is_list(const std::string& word) const {
        const auto reference = list_reference(word);
        return reference && lists_.contains(reference->name);
    }

    void keep_list(const Assignment& assignment, const Words& words) {
        variables_.forget(assignment.name);
        Words own = words;
        std::erase_if(own, [&](const std::string& word) {
            const auto reference = list_reference(word);
            return reference && (reference->subscript || lists_.contains(reference->name));  // another list counts by itself
        });
        if (has_flags(own)) listed_.insert(listed_.end(), own.begin(), own.end());
        const Words all = spliced(words);
        Words& kept = lists_[assignment.name];
        if (!assignment.appends) {
            kept.clear();
            perhaps_.erase(assignment.name);
        }
        kept.insert(kept.end(), all.begin(), all.end());
        if (depth_ > 0) perhaps_.insert(assignment.name);
    }

    /// The words with the lists that they refer to in place of the references.
    Words spliced(const Words& words) {
        Words out;
        for (const std::string& word : words) {
            const auto reference = list_reference(word);
            const auto list = reference ? lists_.find(reference->name) : lists_.end();
            if (list != lists_.end()) {
                for (const std::string& one : list->second) variables_.put_in(one.size() + 1);
                if (variables_.overflowed())
                    throw ConfigError(
                        fmt::format("{}: its lists, put in, are more than 1 MiB; give a command with fewer or shorter ones", where_));
                out.insert(out.end(), list->second.begin(), list->second.end());
                if (perhaps_.contains(reference->name)) doubtful_.insert(reference->name);
            } else if (reference && !reference->otherwise.empty()) {
                Variables none;
                add_words(out, reference->otherwise, none, where_);
            } else if (!reference || (!reference->subscript && !stands_for_flags(out, reference->name))) {
                out.push_back(word);
            } else if (!reference->has_default) {
                // Behind a flag that takes values it holds those, and no flags.
                (stands_for_flags(out, reference->name) ? unknown_ : unknown_values_).insert(reference->name);
            }
        }
        return out;
    }

    /// Whether a bare $NAME behind these words, of a variable that is not known, is no flag's value.
    [[nodiscard]] bool stands_for_flags(const Words& before, const std::string& name) const {
        if (variables_.known(name) || (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0)) return false;
        std::size_t values = 0;
        for (auto word = before.rbegin(); word != before.rend(); ++word, ++values) {
            if (!word->starts_with("--")) continue;
            if (word->find('=') != std::string::npos) return true;
            const auto flag = find_flag(*word);
            return flag && (flag->arity == FlagArity::none || (flag->arity == FlagArity::one && values > 0));
        }
        return true;
    }

    [[nodiscard]] std::size_t line_end(std::size_t at) const {
        const auto end = text_.find('\n', at);
        return end == std::string_view::npos ? text_.size() : end;
    }

    /// A line that is no assignment, with those that a backslash at its end continues it by.
    void pass_line() {
        const std::size_t start = at_;
        if (text_[start] == '#') {
            at_ = line_end(start);
            return;
        }
        if (read_case()) return;
        std::size_t end = line_end(start);
        while (end < text_.size()) {
            const auto last = text_.find_last_not_of(" \t\r", end - 1);
            if (last == std::string_view::npos || last < start || text_[last] != '\\') break;
            end = line_end(end + 1);
        }
        at_ = end;
        const std::string_view line = text_.substr(start, end - start);
        count_conditions(line);
        for (const auto& name : variables_set_by(line))
            variables_.forget(name, fmt::format("line {} sets it to what only running the script would tell", line_number()));
        if (line.starts_with(": ")) (void)variables_.expand(line);  // assigns defaults: ": ${TP:=8}"
        if (const std::string_view path = sourced_path(line); !path.empty()) {
            read_sourced(variables_.expand(path));
            return;
        }
        take_command(line);
    }

    /// Reads the arm of a `case` that runs, where that can be told.
    bool read_case() {
        const std::string_view rest = text_.substr(at_);
        const auto word = word_of_case(rest);
        if (!word) return false;
        std::string plain(*word);
        std::erase(plain, '"');
        const std::size_t doubtful = variables_.doubtful().size();
        const std::string value = variables_.expand(plain);
        if (variables_.doubtful().size() != doubtful || value.find_first_of("$`") != std::string::npos) return false;
        const auto arm = chosen_arm(rest, value);
        if (!arm) return false;
        const std::size_t behind = at_ + arm->behind;
        const std::string_view outer = std::exchange(text_, text_.substr(0, at_ + arm->end));
        at_ += arm->begin;
        if (arm->end > arm->begin) read_statements();
        text_ = outer;
        at_ = behind;
        return true;
    }

    void count_conditions(std::string_view line) {
        bool first = true;
        for (std::size_t at = 0; at < line.size();) {
            const std::size_t begin = std::min(line.find_first_not_of(" \t\r\n;", at), line.size());
            const std::size_t end = std::min(line.find_first_of(" \t\r\n;", begin), line.size());
            const std::string_view word = line.substr(begin, end - begin);
            if (first && (word == "if" || word == "case" || word == "for" || word == "while" || word == "until")) ++depth_;
            if ((word == "fi" || word == "esac" || word == "done") && depth_ > 0) --depth_;
            first = false;
            at = end;
        }
    }

    /// Keeps the words behind a Python file if they describe a model.
    void take_command(std::string_view line) {
        if (line.find(".py") == std::string_view::npos) return;
        const std::size_t before = variables_.expanded();
        const std::set<std::string> unknown = unknown_, doubtful = doubtful_;
        std::optional<Words> words = arguments_in(std::string(line));
        if (!words) {
            // Inside the quotes of `bash -c "…"` a line may open or close one.
            std::string plain(line);
            std::erase_if(plain, [](char c) { return c == '"' || c == '\''; });
            words = arguments_in(plain);
        }
        if (words && names_model(*words)) {
            command_ = std::move(*words);
            return;
        }
        variables_.take_back(before);
        unknown_ = unknown;
        doubtful_ = doubtful;
    }

    /// The words of a line behind its last `….py` that is no flag's value; nothing where a quote stays open.
    std::optional<Words> arguments_in(const std::string& line) {
        Words words;
        bool behind_file = false;
        std::string before;
        try {
            WordScanner scanner(line, 0, variables_, where_);
            while (scanner.skip_blanks()) {
                std::string word = scanner.word();
                if (behind_file && ends_command(word)) break;
                if (word.ends_with(".py") && !before.starts_with("--")) {
                    behind_file = true;
                    words.clear();
                } else if (behind_file && !word.empty()) {
                    const bool last = word.ends_with(';');
                    words.push_back(last ? word.substr(0, word.size() - 1) : word);
                    if (last) break;
                }
                before = std::move(word);
            }
        } catch (const ConfigError&) {
            if (variables_.overflowed()) throw;
            return std::nullopt;
        }
        Words whole;
        for (const std::string& word : spliced(words)) {
            Variables none;
            if (word.starts_with("--") && word.find_first_of(" \t\n") != std::string::npos)
                add_words(whole, word, none, where_);
            else
                whole.push_back(word);
        }
        return whole;
    }

    static bool ends_command(std::string_view word) {
        return word == "|" || word == "||" || word == "&" || word == "&&" || word == ";" || word.starts_with('>') ||
               word.starts_with("1>") || word.starts_with("2>") || word.starts_with("&>") || word == "<";
    }

    ArgumentWords finish(Words words) const {
        ArgumentWords found;
        found.words = std::move(words);
        std::set<std::string> doubtful = doubtful_;
        doubtful.insert(variables_.doubtful().begin(), variables_.doubtful().end());
        if (!doubtful.empty())
            found.notes.push_back(
                fmt::format("{} sets {} in an if, case or loop, read as if every branch ran, the last one last; "
                            "to be sure, give the flags of the command as it runs",
                            where_, fmt::join(doubtful, ", ")));
        std::vector<std::string> unset(unknown_values_.begin(), unknown_values_.end());
        for (const auto& name : unknown_) {
            // What a command prints, or a file that is not at hand sets, may be flags; what nothing sets is empty.
            const auto why = variables_.why_unknown(name);
            if (why)
                found.missing.push_back(fmt::format("{} takes ${}, which may hold flags: {}; write its value", where_, name, *why));
            else if (!not_sourced_.empty())
                found.missing.push_back(fmt::format(
                    "{} takes ${}, which it does not set and which may hold flags: it sources what is not at hand ({}); put the "
                    "file beside it, or write the flags",
                    where_, name, fmt::join(not_sourced_, "; ")));
            else
                unset.push_back(name);
        }
        if (!unset.empty())
            found.notes.push_back(
                fmt::format("{} takes {}, which it sets nowhere that is read (assignments stand on lines of their own); left out", where_,
                            fmt::join(unset, ", ")));
        for (const auto& word : found.words) {
            for (const auto& name : variables_in(word)) {
                if (const auto why = variables_.why_unknown(name)) found.unresolved.emplace(name, *why);
            }
        }
        if (!not_sourced_.empty())
            found.not_sourced = fmt::format("{} sources what is not at hand ({})", where_, fmt::join(not_sourced_, "; "));
        return found;
    }

    std::string_view text_;
    const std::string& where_;
    const std::string& folder_;
    std::size_t at_ = 0;
    std::deque<std::string> sourced_;       // texts of the files that are read besides
    std::vector<std::string> not_sourced_;  // those that are not at hand, with their lines
    int depth_ = 0;                         // of if, case and loops
    Variables variables_;
    std::map<std::string, Words> lists_;        // arrays, and texts of flags
    std::set<std::string> perhaps_, doubtful_;  // lists that a condition fills; those of them that were put in
    std::set<std::string> unknown_;             // lists that were to be put in and are not known
    std::set<std::string> unknown_values_;      // those of them behind a flag that takes values
    Words command_, listed_;                    // of the command; all that lists hold, each word once
};

}  // namespace

ArgumentWords script_words(std::string_view text, const std::string& where, const std::string& folder) {
    return ScriptReader(text, where, folder).read();
}

}  // namespace mgplan::importers
