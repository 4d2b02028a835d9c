#include "formats/megatron/shell_command.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "formats/megatron/script_surroundings.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

bool ends_command(std::string_view word) {
    return word == "|" || word == "||" || word == "&" || word == "&&" || word == ";" || word.starts_with('>') || word.starts_with("1>") ||
           word.starts_with("2>") || word.starts_with("&>") || word == "<";
}

constexpr std::array<std::string_view, 2> kModelFlags{"--num-layers", "--hidden-size"};
/// Options that name a recipe of Megatron-Bridge, which states the model.
constexpr std::array<std::string_view, 3> kRecipeFlags{"--recipe", "--model-recipe-name", "-mr"};
constexpr std::array<std::string_view, 6> kLayoutFlags{"--tensor-model-parallel-size", "--pipeline-model-parallel-size",
                                                       "--context-parallel-size",      "--expert-model-parallel-size",
                                                       "--micro-batch-size",           "--global-batch-size"};

/// Forks write flags with underscores.
template <class Flags>
bool names_one_of(const std::vector<std::string>& words, const Flags& flags) {
    return std::any_of(words.begin(), words.end(), [&flags](std::string word) {
        if (!word.starts_with('-')) return false;
        std::replace(word.begin(), word.end(), '_', '-');
        return std::any_of(flags.begin(), flags.end(), [&word](std::string_view flag) { return word.starts_with(flag); });
    });
}

/// "actor.megatron.tensor_model_parallel_size=2": an override of verl, NeMo-RL or Megatron-Bridge.
bool overrides_layout(const std::string& word) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || word.starts_with('-')) return false;
    std::string name = "--" + word.substr(0, equals).substr(word.substr(0, equals).rfind('.') + 1);  // npos + 1 is 0
    std::replace(name.begin(), name.end(), '_', '-');
    return std::find(kLayoutFlags.begin(), kLayoutFlags.end(), name) != kLayoutFlags.end();
}

/// Subcommands of ms-swift's program `megatron` that train.
bool trains_by_swift(std::string_view before, std::string_view word) {
    return before == "megatron" && (word == "sft" || word == "pt" || word == "rlhf");
}

/// True if words that are not known are only where a launcher takes a name or an address, or in a variable that it passes on.
bool only_names_places(const std::vector<std::string>& words) {
    static constexpr std::array<std::string_view, 10> kPlaces{"node-rank", "master-addr", "master-port", "rdzv-id",      "rdzv-endpoint",
                                                              "log-dir",   "job-name",    "output",      "machine-rank", "main-process-ip"};
    const auto is_place = [](std::string option) {
        option = option.substr(0, option.find('='));
        std::replace(option.begin(), option.end(), '_', '-');
        return option.starts_with("--") && std::find(kPlaces.begin(), kPlaces.end(), option.substr(2)) != kPlaces.end();
    };
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i].find_first_of("$`") == std::string::npos) continue;
        const std::size_t equals = words[i].find('=');
        const bool assigns =
            equals != std::string::npos && std::all_of(words[i].begin(), words[i].begin() + static_cast<std::ptrdiff_t>(equals), is_name);
        if (assigns && !words[i].starts_with("NPROC_PER_NODE=") && !words[i].starts_with("NNODES=")) continue;
        if (!is_place(words[i]) && (i == 0 || !is_place(words[i - 1]))) return false;
    }
    return true;
}

}  // namespace

bool names_model(const std::vector<std::string>& words) {
    return names_one_of(words, kModelFlags);
}

bool names_layout(const std::vector<std::string>& words) {
    return names_one_of(words, kLayoutFlags) || names_one_of(words, kRecipeFlags) ||
           std::any_of(words.begin(), words.end(), overrides_layout);
}

void LaunchCommand::take(std::string_view line) {
    const bool starts = line.find(".py") != std::string_view::npos || line.find("megatron ") != std::string_view::npos ||
                        line.find(" -m ") != std::string_view::npos;
    if (!starts) return;
    const std::size_t before = variables_.expanded();
    const FlagLists::Doubts doubts = lists_.doubts();
    std::optional<Call> call = arguments_in(std::string(line));
    if (!call) {
        // Inside the quotes of `bash -c "…"` a line may open or close one.
        std::string plain(line);
        std::erase_if(plain, [](char c) { return c == '"' || c == '\''; });
        call = arguments_in(plain);
    }
    if (call && counts(call->words)) {
        words_ = std::move(call->words);
        program_ = std::move(call->program);
        launcher_ = std::move(call->launcher);
        return;
    }
    variables_.take_back(before);
    lists_.take_back(doubts);
}

/// Returns the words of a line after its last `….py` that is no flag's value; nothing where a quote stays open.
std::optional<LaunchCommand::Call> LaunchCommand::arguments_in(const std::string& line) {
    Call call;
    Words words;
    bool behind_file = false;
    std::string before;
    const std::size_t doubtful = variables_.doubtful_uses();
    try {
        WordScanner scanner(line, 0, variables_, where_);
        while (scanner.skip_blanks()) {
            std::string word = scanner.word();
            if (behind_file && ends_command(word)) break;
            // torch's own modules start a file that follows.
            const bool module = before == "-m" && !behind_file && word.find('.') != std::string::npos && !word.starts_with("torch.");
            if ((word.ends_with(".py") && !before.starts_with("--")) || trains_by_swift(before, word) || module) {
                if (!behind_file) call.launcher = launcher_words(words);
                if (variables_.doubtful_uses() != doubtful) call.launcher.reset();
                behind_file = true;
                call.program = word;
                words.clear();
            } else if (!behind_file) {
                words.push_back(word);
            } else if (scanner.splits() && !word.starts_with("--")) {
                Variables none;
                add_words(words, word, none, where_);
            } else if (!word.empty()) {
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
    for (const std::string& word : lists_.spliced(words)) {
        Variables none;
        if (word.starts_with("--") && word.find_first_of(" \t\n") != std::string::npos)
            add_words(call.words, word, none, where_);
        else
            call.words.push_back(word);
    }
    return call;
}

/// Words in front of the program, with the lists that they name. A list that is not known may hold any word of the launcher.
std::optional<LaunchCommand::Words> LaunchCommand::launcher_words(const Words& words) {
    const auto is_unknown_list = [this](const std::string& word) { return list_reference(word) && !lists_.refers(word); };
    if (std::any_of(words.begin(), words.end(), is_unknown_list) && !only_names_places(words)) return std::nullopt;
    const FlagLists::Doubts doubts = lists_.doubts();
    Words split;
    for (const std::string& word : lists_.spliced(words)) {
        Variables none;
        add_words(split, word, none, where_);
    }
    lists_.take_back(doubts);
    return only_names_places(split) ? std::optional(split) : std::nullopt;
}

std::optional<LaunchCommand::Words> LaunchCommand::words_of(std::string_view line) {
    Words words;
    try {
        WordScanner scanner(line, 0, variables_, where_);
        while (scanner.skip_blanks()) {
            std::string word = scanner.word();
            if (ends_command(word)) break;
            const bool last = word.ends_with(';');
            if (last) word.pop_back();
            if (!word.empty() || !last) words.push_back(std::move(word));
            if (last) break;
        }
    } catch (const ConfigError&) {
        if (variables_.overflowed()) throw;
        return std::nullopt;
    }
    return lists_.spliced(words);
}

ArgumentWords with_doubts(std::vector<std::string> words, const Variables& variables, const FlagLists& lists,
                          const std::vector<std::string>& not_sourced, const std::string& where, bool model_is_given) {
    ArgumentWords found;
    found.words = std::move(words);
    const FlagLists::Doubts& doubts = lists.doubts();
    std::set<std::string> doubtful = doubts.doubtful;
    doubtful.insert(variables.doubtful().begin(), variables.doubtful().end());
    if (!doubtful.empty())
        found.notes.push_back(
            fmt::format("{} sets {} in an if, case or loop, read as if every branch ran, the last one last; "
                        "to be sure, give the flags of the command as it runs",
                        where, fmt::join(doubtful, ", ")));
    std::vector<std::string> unset(doubts.unknown_values.begin(), doubts.unknown_values.end());
    for (const auto& name : doubts.unknown) {
        if (model_is_given && name == "MODEL_ARGS") continue;  // by its name the model's flags alone
        // The output of a command, or a variable that an unavailable file sets, may hold flags; a variable that nothing sets is empty.
        const auto why = variables.why_unknown(name);
        if (why)
            found.missing.push_back(
                fmt::format("{} takes ${}, which may hold flags: {}; write its value, or give it by --set {}=…", where, name, *why, name));
        else if (!not_sourced.empty())
            found.missing.push_back(
                fmt::format("{} takes ${}, which it does not set and which may hold flags: it sources a missing file ({}); put the "
                            "file next to it, or give the flags by --set {}=…",
                            where, name, fmt::join(not_sourced, "; "), name));
        else
            unset.push_back(name);
    }
    if (!unset.empty())
        found.notes.push_back(
            fmt::format("{} takes {}, which it sets nowhere that is read (assignments stand on lines of their own); left out", where,
                        fmt::join(unset, ", ")));
    for (const auto& word : found.words) {
        for (const auto& name : variables_in(word)) {
            if (const auto why = variables.why_unknown(name)) found.unresolved.emplace(name, *why);
        }
    }
    if (!not_sourced.empty()) found.not_sourced = fmt::format("{} sources a missing file ({})", where, fmt::join(not_sourced, "; "));
    return found;
}

}  // namespace mgplan::formats
