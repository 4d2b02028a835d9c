#include "formats/megatron/shell_script.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "formats/megatron/launch_world.hpp"
#include "formats/megatron/script_surroundings.hpp"
#include "formats/megatron/shell_arithmetic.hpp"
#include "formats/megatron/shell_blocks.hpp"
#include "formats/megatron/shell_case.hpp"
#include "formats/megatron/shell_command.hpp"
#include "formats/megatron/shell_lists.hpp"
#include "formats/megatron/shell_test.hpp"
#include "formats/megatron/shell_words.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using Words = std::vector<std::string>;

/// True if the last character closes an array: parentheses inside a word (layout strings) pair up.
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
    for (const std::string_view keyword : {"export ", "local ", "readonly ", "declare ", "typeset "}) {
        if (!text.substr(at).starts_with(keyword)) continue;
        at += keyword.size();
        while (at + 2 < text.size() && text[at] == '-' && text[at + 2] == ' ') at += 3;  // declare -a
        break;
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

/// True if a loop's body has break or continue.
bool leaves_turns(std::string_view body) {
    for (const std::string_view word : {"break", "continue"}) {
        for (std::size_t at = body.find(word); at != std::string_view::npos; at = body.find(word, at + 1)) {
            const bool begins = at == 0 || !is_name(body[at - 1]),
                       ends = at + word.size() >= body.size() || !is_name(body[at + word.size()]);
            if (begins && ends) return true;
        }
    }
    return false;
}

/// The variable without which a script ends: `if [ -z "${NAME:-}" ]; then …; exit 1; fi`. "" for other tests and branches.
std::string wanted_by(std::string_view test, std::string_view body) {
    if (test.find(" -z ") == std::string_view::npos || test.find("||") != std::string_view::npos ||
        test.find("&&") != std::string_view::npos)
        return "";
    const std::vector<std::string> names = variables_in(test);
    if (names.size() != 1 || std::isdigit(static_cast<unsigned char>(names.front()[0])) != 0) return "";
    for (const std::string& line : split(body, '\n')) {
        const std::string_view word = trimmed(line);
        if (word.starts_with("exit ") && !word.starts_with("exit 0")) return names.front();
    }
    return "";
}

/// Reads a script from top to bottom. Everything but assignments and commands is passed over, unbalanced quotes in other lines included.
class ScriptReader {
public:
    ScriptReader(std::string_view text, const std::string& where, const std::string& folder, const ScriptInputs& inputs)
        : text_(text), where_(where), folder_(folder), layout_suffices_(inputs.model_is_given) {
        for (const auto& [name, value] : slurm_variables(text)) variables_.assign(name, value);
        for (const auto& [name, value] : inputs.variables) {
            variables_.fix(name, value);
            Words words;
            Variables none;
            if (value.find("--") != std::string::npos) add_words(words, value, none, fmt::format("--set {}", name));
            if (has_flags(words)) lists_.fix(name, std::move(words));
        }
        if (inputs.arguments) lists_.set_arguments(inputs.arguments);
    }

    ArgumentWords read() {
        const std::string_view whole = text_;
        read_statements();
        if (!commands_.found()) read_functions_not_called();
        text_ = whole;
        if (commands_.found()) return finish(commands_.words());
        if (exit_line_ > 0)
            throw ConfigError(
                fmt::format("{} exits at line {}, before any command with a model's flags; give it other values by --set NAME=VALUE or "
                            "--script-args",
                            where_, exit_line_));
        if (names_model(lists_.all()) || (layout_suffices_ && names_layout(lists_.all()))) {
            // Whoever takes the lists may take others that a sourced file sets.
            ArgumentWords found = finish(lists_.all());
            if (!not_sourced_.empty())
                found.missing.push_back(
                    fmt::format("{} runs no command with its flags, and sources a missing file and may set more of them ({}); put the "
                                "file next to it, or give the command as it runs",
                                where_, fmt::join(not_sourced_, "; ")));
            return found;
        }
        // A plain file of flags, or a script whose command is no Python file.
        Words words;
        add_words(words, text_, variables_, where_);
        return finish(lists_.spliced(words));
    }

private:
    void read_statements() {
        while (at_ < text_.size() && !ended_) {
            while (at_ < text_.size() && (is_blank(text_[at_]) || text_[at_] == ';')) ++at_;
            if (at_ >= text_.size() || skip_keyword() || read_function() || read_if() || read_loop() || read_count()) continue;
            if (const auto assignment = assignment_at(text_, at_))
                assign(*assignment);
            else
                pass_line();
        }
    }

    /// Reads a part of a text, which may be another one than that which is read now.
    void read_part(std::string_view text, TextPart part) {
        constexpr int kDeepest = 64;
        if (nested_ >= kDeepest || !spend(part.end - part.begin)) return;
        ++nested_;
        const std::string_view outer = std::exchange(text_, text.substr(0, part.end));
        const std::size_t outer_at = std::exchange(at_, part.begin);
        read_statements();
        text_ = outer;
        at_ = outer_at;
        --nested_;
    }

    /// Counts the bytes of a statement each time that one is read; true if it may still be followed.
    bool spend(std::size_t bytes) {
        constexpr std::size_t kMost = std::size_t{8} << 20U;
        spent_ += bytes + 1;
        return spent_ <= kMost;
    }

    /// The statement here as `parse` finds it, if it begins with the keyword.
    template <class Statement>
    std::optional<Statement> statement_here(std::string_view keyword, std::optional<Statement> (*parse)(std::string_view)) {
        const std::string_view rest = text_.substr(at_);
        if (!rest.starts_with(keyword) || rest.size() == keyword.size() || !is_blank(rest[keyword.size()])) return std::nullopt;
        if (!spend(std::min(rest.size(), kLongestBlock))) return std::nullopt;
        return parse(rest);
    }
    [[nodiscard]] TextPart moved(TextPart part) const { return {part.begin + at_, part.end + at_}; }

    /// Keeps a function for its calls.
    bool read_function() {
        const std::string_view line = text_.substr(at_, std::min(line_end(at_) - at_, std::size_t{128}));
        if (line.find("()") == std::string_view::npos && !line.starts_with("function ")) return false;
        if (!spend(std::min(text_.size() - at_, kLongestBlock))) return false;
        const auto found = function_definition(text_.substr(at_));
        if (!found) return false;
        functions_[found->name] = {text_, moved(found->body), false};
        at_ += found->behind;
        return true;
    }

    /// Reads the branch of an `if` that runs, where its conditions can be decided.
    bool read_if() {
        const auto found = statement_here("if", if_statement);
        if (!found) return false;
        for (const ShellBranch& branch : found->branches) {
            const auto truth = branch.otherwise ? std::optional(true) : truth_of(moved(branch.test).of(text_), variables_, where_);
            if (!truth) return false;
            if (!*truth) continue;
            if (const std::string name = branch.otherwise ? "" : wanted_by(moved(branch.test).of(text_), moved(branch.body).of(text_));
                !name.empty())
                variables_.forget(name, fmt::format("line {} ends the script unless it is set from outside", line_number()));
            else
                read_part(text_, moved(branch.body));
            break;
        }
        at_ += found->behind;
        return true;
    }

    /// Reads a loop over the script's arguments as often as it runs; after any other that names them they are not known.
    bool read_loop() {
        const auto found = statement_here("while", while_loop);
        if (!found) return false;
        const std::string_view test = moved(found->test).of(text_), body = moved(found->body).of(text_);
        if (body.find("shift") == std::string_view::npos) return false;
        constexpr int kMostTurns = 256;
        for (int turn = 0; turn < kMostTurns; ++turn) {
            const auto before = variables_.arguments();
            const auto truth = before ? truth_of(test, variables_, where_) : std::nullopt;
            if (!truth) break;
            if (*truth) read_part(text_, moved(found->body));
            if (!*truth || ended_) {
                at_ += found->behind;
                return true;
            }
            if (variables_.arguments() == before) break;
        }
        lists_.set_arguments(std::nullopt);
        return false;
    }

    /// Reads the turns of a loop that counts between known numbers.
    bool read_count() {
        const auto found = statement_here("for", for_loop);
        const auto count = found ? shell_count(moved(found->test).of(text_)) : std::nullopt;
        if (!count || leaves_turns(moved(found->body).of(text_))) return false;
        const auto first = shell_arithmetic(count->first, [this](const std::string& name) { return variables_.certain(name); });
        constexpr std::int64_t kMost = std::int64_t{1} << 40U;
        if (!first || *first < -kMost || *first > kMost) return false;
        const auto goes_on = [&](std::int64_t turn) {
            variables_.assign(count->name, std::to_string(*first + turn * count->step));
            return truth_of(fmt::format("(( {} ))", count->condition), variables_, where_);
        };
        constexpr std::int64_t kMostTurns = 4096;
        std::int64_t turns = 0;
        while (turns < kMostTurns && goes_on(turns).value_or(false)) ++turns;
        if (turns == kMostTurns || !goes_on(turns)) return false;
        for (std::int64_t turn = 0; turn < turns && !ended_ && goes_on(turn).value_or(false); ++turn) read_part(text_, moved(found->body));
        (void)goes_on(turns);
        at_ += found->behind;
        return true;
    }

    /// A call of a function of the script: `name arguments`.
    bool call_function(std::string_view line) {
        const std::size_t end = std::min(line.find_first_of(" \t\r\n;&|>"), line.size());
        const auto found = functions_.find(std::string(line.substr(0, end)));
        constexpr int kDeepestCalls = 16;
        constexpr std::size_t kOfACall = 8192;  // functions that call themselves twice call very often
        if (found == functions_.end() || calls_ >= kDeepestCalls || !spend(kOfACall)) return false;
        const auto words = commands_.words_of(line);
        const std::optional<Words> outer = variables_.arguments();
        lists_.set_arguments(words ? std::optional(Words(words->begin() + (words->empty() ? 0 : 1), words->end())) : std::nullopt);
        found->second.called = true;
        const Function function = found->second;
        ++calls_;
        read_part(function.text, function.body);
        --calls_;
        if (returned_) ended_ = returned_ = false;
        lists_.set_arguments(outer);
        return true;
    }

    /// Those that the script calls in ways that are not followed.
    void read_functions_not_called() {
        const auto functions = functions_;
        const std::int64_t exit_line = exit_line_;
        ++calls_;
        lists_.set_arguments(std::nullopt);
        for (const auto& [name, function] : functions) {
            if (function.called) continue;
            ended_ = returned_ = false;
            read_part(function.text, function.body);
        }
        --calls_;
        exit_line_ = exit_line;
    }

    /// `printf -v NAME "[%s]" "$(IFS=','; echo "${LIST[*]}")"`: the words of a list with the first character of IFS between them.
    bool read_joined_list(std::string_view line) {
        constexpr std::string_view kBegin = "printf -v ", kSeparator = "\"$(IFS=", kList = "echo \"${";
        const std::size_t separator = line.find(kSeparator), list = line.find(kList), star = line.find("[*]}\")\"");
        if (!line.starts_with(kBegin) || separator == std::string_view::npos || list == std::string_view::npos || star < list ||
            star == std::string_view::npos || list < separator)
            return false;
        const std::size_t end = std::min(line.find(' ', kBegin.size()), separator);
        std::string_view format = line.substr(end, separator - end);
        const std::size_t open = format.find('"'), close = format.rfind('"'), hole = format.find("%s");
        std::size_t at = separator + kSeparator.size();
        if (at < line.size() && (line[at] == '\'' || line[at] == '"')) ++at;
        const auto words = lists_.known(std::string(line.substr(list + kList.size(), star - list - kList.size())));
        if (!words || open >= hole || hole == std::string_view::npos || close < hole || line[at] == ';' || line[at] == '$') return false;
        std::string value(format.substr(open + 1, close - open - 1));
        value.replace(hole - open - 1, 2, fmt::format("{}", fmt::join(*words, std::string(1, line[at]))));
        variables_.assign(std::string(line.substr(kBegin.size(), end - kBegin.size())), std::move(value), depth_ > 0);
        return true;
    }

    /// printf -v, shift, set --, exit and return.
    bool read_builtin(std::string_view line) {
        if (read_joined_list(line)) return true;
        const std::size_t end = std::min(line.find_first_of(" \t\r\n;"), line.size());
        const std::string_view name = line.substr(0, end);
        if (name == "shift") {
            const auto words = commands_.words_of(line);
            const auto count = !words || words->size() < 2 ? std::optional<std::int64_t>(1) : parse_integer((*words)[1]);
            const auto& known = variables_.arguments();
            if (!known || depth_ > 0 || !count || *count < 0)
                lists_.set_arguments(std::nullopt);
            else if (*count <= std::ssize(*known))
                lists_.set_arguments(Words(known->begin() + *count, known->end()));
            return false;
        }
        if (line.starts_with("set -- ")) {
            const auto words = commands_.words_of(line.substr(std::string_view("set -- ").size()));
            lists_.set_arguments(depth_ > 0 ? std::nullopt : words);
            return true;
        }
        if ((name != "exit" && name != "return") || depth_ > 0) return false;
        ended_ = true;
        returned_ = name == "return" && calls_ > 0;
        if (name == "exit" && !line.substr(end).starts_with(" 0")) exit_line_ = line_number();
        return true;
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
        read_part(sourced_.back(), {0, sourced_.back().size()});
    }

    /// Counts on from the line of the previous call, so that a script of many lines is not counted from its start for each of them.
    [[nodiscard]] std::int64_t line_number() {
        const std::size_t at = std::min(at_, text_.size());
        if (counted_text_ != text_.data() || at < counted_at_) {
            counted_text_ = text_.data();
            counted_at_ = 0;
            line_ = 1;
        }
        line_ +=
            std::count(text_.begin() + static_cast<std::ptrdiff_t>(counted_at_), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
        counted_at_ = at;
        return line_;
    }

    /// Words that precede others on their line: `then NAME=…`.
    bool skip_keyword() {
        for (const std::string_view keyword : {"then", "else", "do"}) {
            const std::size_t end = at_ + keyword.size();
            if (text_.substr(at_).starts_with(keyword) && end < text_.size() && is_blank(text_[end])) {
                at_ = end;
                return true;
            }
        }
        return open_cases_ > 0 && skip_pattern();
    }

    /// The patterns of an arm: `small | tiny)`.
    bool skip_pattern() {
        std::size_t end = at_;
        while (end < text_.size() && text_[end] != '\n' && std::string_view("()$`;=").find(text_[end]) == std::string_view::npos) ++end;
        if (end == at_ || end >= text_.size() || text_[end] != ')') return false;
        at_ = end + 1;
        return true;
    }

    /// `NAME=$(cat <<EOF …)`: the lines up to EOF may hold the command, as recipes that start a worker's script by torchrun have it.
    bool assign_document(const Assignment& assignment) {
        constexpr std::string_view kBegin = "$(cat <<";
        std::string_view rest = text_.substr(assignment.value_at);
        if (rest.starts_with('"')) rest.remove_prefix(1);
        if (!rest.starts_with(kBegin)) return false;
        const std::size_t begin = std::min(line_end(assignment.value_at) + 1, text_.size());
        std::string mark(text_.substr(assignment.value_at, begin - assignment.value_at));
        mark.erase(0, mark.find("<<") + 2);
        std::erase_if(mark, [](char c) { return c == '\'' || c == '"' || c == '-' || is_blank(c); });
        std::size_t end = begin;
        while (end < text_.size() && trimmed(text_.substr(end, line_end(end) - end)) != mark) end = line_end(end) + 1;
        if (mark.empty() || end >= text_.size()) return false;
        read_part(text_, {begin, end});
        lists_.forget(assignment.name);
        variables_.forget(assignment.name, fmt::format("line {} sets it to a text of several lines", line_number()));
        at_ = line_end(std::min(line_end(end) + 1, text_.size()));  // past the parenthesis
        return true;
    }

    void assign(const Assignment& assignment) {
        if (assign_document(assignment)) return;
        const std::size_t doubtful = variables_.doubtful_uses();
        WordScanner scanner(text_, assignment.value_at, variables_, where_);
        const std::string_view value = text_.substr(assignment.value_at);
        if (value.starts_with('(')) {
            scanner.move_to(assignment.value_at + 1);
            lists_.keep(assignment.name, assignment.appends, array(scanner), depth_ > 0);
        } else if (!value.empty() && !is_blank(value[0]) && value[0] != ';') {
            assign_text(assignment, scanner);
        } else if (!assignment.appends) {
            lists_.forget(assignment.name);
            variables_.assign(assignment.name, "", depth_ > 0);
        }
        variables_.derive(assignment.name, doubtful);
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
        const bool known = !words.empty() && (words.front().starts_with("--") || lists_.refers(words.front()));
        if (known) {
            // Older scripts keep their flags in one quoted text.
            lists_.keep(assignment.name, assignment.appends, words, depth_ > 0);
            return;
        }
        commands_.take(value);  // and some their command: CMD="torchrun … pretrain_gpt.py $ARGS"
        variables_.take_back(before);
        lists_.forget(assignment.name);
        if (value.find_first_of("$`") == std::string::npos || is_path_with_unknown_beginning(value)) {
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

    /// The words after an array's opening parenthesis.
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

    [[nodiscard]] ArgumentWords finish(const Words& words) const {
        ArgumentWords found = with_doubts(words, variables_, lists_, not_sourced_, where_, layout_suffices_);
        found.sourced.assign(sourced_.begin(), sourced_.end());
        for (const std::string_view name : variables_of_rules()) {
            if (const auto value = variables_.certain(std::string(name))) found.environment.emplace(name, *value);
        }
        if (!commands_.found()) return found;
        found.program = commands_.program();
        if (commands_.launcher())
            found.world = launch_world(*commands_.launcher(), commands_.program(), commands_.words(),
                                       [this](const std::string& name) { return variables_.certain(name); });
        return found;
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
        const std::string_view line = text_.substr(start, end - start);
        if (read_builtin(line)) {
            at_ = end;
            return;
        }
        if (call_function(line)) {
            at_ = end;
            return;
        }
        at_ = end;
        count_conditions(line);
        for (const auto& name : variables_set_by(line))
            variables_.forget(name, fmt::format("line {} sets it to what only running the script would tell", line_number()));
        if (line.starts_with(": ")) (void)variables_.expand(line);  // assigns defaults: ": ${TP:=8}"
        if (const std::string_view path = sourced_path(line); !path.empty()) {
            read_sourced(variables_.expand(path));
            return;
        }
        commands_.take(line);
    }

    /// Reads the arm of a `case` that runs, where that can be decided.
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
        if (arm->end > arm->begin) read_part(text_, moved({arm->begin, arm->end}));
        at_ += arm->behind;
        return true;
    }

    void count_conditions(std::string_view line) {
        bool first = true;
        for (std::size_t at = 0; at < line.size();) {
            const std::size_t begin = std::min(line.find_first_not_of(" \t\r\n;", at), line.size());
            const std::size_t end = std::min(line.find_first_of(" \t\r\n;", begin), line.size());
            const std::string_view word = line.substr(begin, end - begin);
            if (first && (word == "if" || word == "case" || word == "for" || word == "while" || word == "until")) ++depth_;
            if (first && word == "case") ++open_cases_;
            if (word == "esac" && open_cases_ > 0) --open_cases_;
            if (word == "{" || word == "(") ++depth_;
            if ((word == "fi" || word == "esac" || word == "done" || word == "}" || word == ")") && depth_ > 0) --depth_;
            first = false;
            at = end;
        }
    }

    std::string_view text_;
    const std::string& where_;
    const std::string& folder_;
    bool layout_suffices_;
    std::size_t at_ = 0;
    std::deque<std::string> sourced_;       // texts of the files that are read besides
    std::vector<std::string> not_sourced_;  // those that are not available, with their lines
    int depth_ = 0;                         // of if, case and loops
    Variables variables_;
    FlagLists lists_{variables_, where_};
    LaunchCommand commands_{variables_, lists_, where_, layout_suffices_};
    struct Function {
        std::string_view text;
        TextPart body;
        bool called = false;
    };
    std::map<std::string, Function> functions_;
    int nested_ = 0, calls_ = 0;          // parts and functions that are being read
    std::size_t spent_ = 0;               // bytes of the statements that were followed
    int open_cases_ = 0;                  // open `case` statements without a known arm that runs
    bool ended_ = false;                  // the script's end, or that of a function
    bool returned_ = false;               // of a function alone
    std::int64_t exit_line_ = 0;          // of an exit with a failure
    const char* counted_text_ = nullptr;  // line_number(): line_ is that of counted_at_ in this text
    std::size_t counted_at_ = 0;
    std::int64_t line_ = 1;
};

}  // namespace

ArgumentWords script_words(std::string_view text, const std::string& where, const std::string& folder, const ScriptInputs& inputs) {
    return ScriptReader(text, where, folder, inputs).read();
}

}  // namespace mgplan::formats
