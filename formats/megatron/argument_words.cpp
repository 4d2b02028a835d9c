#include <map>

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/shell_script.hpp"
#include "formats/megatron/shell_words.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats {
namespace {

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
void add_yaml_entry(std::vector<std::string>& words, const std::string& flag, const YAML::Node& value, const std::string& where,
                    Variables& given) {
    if (value.IsNull()) {
        words.push_back(flag);
    } else if (value.IsScalar()) {
        const std::string& text = value.Scalar();
        if (text == "false" || text == "False") return;
        words.push_back(flag);
        if (text != "true" && text != "True") add_words(words, text, given, where);
    } else if (value.IsSequence()) {
        words.push_back(flag);
        for (const auto& item : value) {
            if (!item.IsScalar()) throw ConfigError(fmt::format("{}: {} holds a nested list; give plain values", where, flag));
            words.push_back(given.expand(item.Scalar()));
        }
    } else {
        throw ConfigError(fmt::format("{}: {} holds a mapping; give a value, true or false", where, flag));
    }
}

/// The flags of a mapping, those of the mappings that it merges (<<) first: of a flag given twice the last one counts, as YAML's own keys
/// win over merged ones. A flag that the mapping itself sets to false is not taken from the merged ones either.
void add_yaml_flags(std::vector<std::string>& words, const YAML::Node& flags, const std::string& where, Variables& given,
                    Problems& problems) {
    constexpr int kDeepest = 16, kMostMerged = 1000;  // mappings that merge each other twice would double at each level
    int taken = 0;
    std::map<std::string, YAML::Node> merged;
    std::vector<std::string> order;
    const auto take = [&](const YAML::Node& from, const auto& again, int level) -> void {
        if (level > kDeepest || ++taken > kMostMerged) {
            if (taken <= kMostMerged + 1)
                problems.add("{}: << merges more than {} mappings, or more than {} into each other; write the flags out", where,
                             kMostMerged, kDeepest);
            taken = kMostMerged + 1;
            return;
        }
        for (const auto& entry : from) {
            if (!entry.first.IsScalar() || entry.first.Scalar() != "<<") continue;
            if (entry.second.IsMap()) {
                again(entry.second, again, level + 1);
            } else if (entry.second.IsSequence()) {
                // The first of several mappings wins (YAML's merge key), so that it comes last here.
                for (std::size_t i = entry.second.size(); i-- > 0;) {
                    if (entry.second[i].IsMap()) again(entry.second[i], again, level + 1);
                }
            } else {
                problems.add("{}: << merges what is no mapping; write <<: *NAME of an anchor &NAME", where);
            }
        }
        for (const auto& entry : from) {
            if (!entry.first.IsScalar()) {
                problems.add("{}: MODEL_ARGS has a key that is no flag; write --flag: value", where);
                continue;
            }
            std::string flag = entry.first.Scalar();
            if (flag == "<<") continue;
            if (!flag.starts_with("--")) flag = "--" + flag;
            if (!merged.contains(flag)) order.push_back(flag);
            merged[flag].reset(entry.second);
        }
    };
    take(flags, take, 0);
    for (const auto& flag : order) {
        try {
            add_yaml_entry(words, flag, merged[flag], where, given);
        } catch (const ConfigError& error) {
            problems.absorb(error);
        }
    }
}

std::vector<std::string> yaml_words(std::string_view text, const std::string& where, const ScriptInputs& inputs) {
    std::vector<std::string> words;
    try {
        const YAML::Node root = YAML::Load(std::string(text));
        if (!root.IsMap()) throw ConfigError(fmt::format("{}: no YAML mapping; write MODEL_ARGS: with one --flag: value a line", where));
        const YAML::Node arguments = root["MODEL_ARGS"];
        if (!arguments || !arguments.IsMap())
            throw ConfigError(fmt::format("{}: MODEL_ARGS is no mapping; write one --flag: value a line below it", where));
        Problems problems;
        Variables given;
        for (const auto& [name, value] : inputs.variables) given.fix(name, value);
        add_yaml_flags(words, arguments, where, given, problems);
        problems.throw_if_any();
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", where, error.mark.line + 1, error.mark.column + 1, error.msg));
    }
    return words;
}

/// Whether the text names the variable as a word of its own.
bool names_word(std::string_view text, const std::string& name) {
    for (auto at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
        const std::size_t end = at + name.size();
        if ((at == 0 || !is_name(text[at - 1])) && (end >= text.size() || !is_name(text[end]))) return true;
    }
    return false;
}

}  // namespace

ArgumentWords argument_words(std::string_view text, const std::string& where, const std::string& folder, const ScriptInputs& inputs) {
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
    // A shell script may call its array MODEL_ARGS too, but followed by "=".
    ArgumentWords found = has_model_args(text) ? ArgumentWords{.words = yaml_words(text, where, inputs),
                                                               .notes = {},
                                                               .missing = {},
                                                               .unresolved = {},
                                                               .sourced = {},
                                                               .not_sourced = {}}
                                               : script_words(text, where, folder, inputs);
    for (const auto& [name, value] : inputs.variables) {
        bool named = names_word(text, name);
        for (const auto& sourced : found.sourced) named = named || names_word(sourced, name);
        if (!named) found.missing.push_back(fmt::format("--set {}: {} names no such variable; check its spelling", name, where));
    }
    return found;
}

}  // namespace mgplan::formats
