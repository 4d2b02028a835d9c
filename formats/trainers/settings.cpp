#include "formats/trainers/settings.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

constexpr std::size_t kMostValues = 20000;
constexpr int kDeepest = 24, kDeepestReference = 8;

bool is_absent(std::string_view text) {
    return text.empty() || text == "null" || text == "None" || text == "~" || text == "Null" || text == "NULL";
}

std::string_view without_quotes(std::string_view text) {
    text = trimmed(text);
    if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
        text = text.substr(1, text.size() - 2);
    return text;
}

/// The default of a variable of the environment: "TP:4" of Primus, "oc.env:TP,4" of OmegaConf.
std::optional<std::string> default_of_variable(std::string_view name) {
    if (name.starts_with("oc.env:")) {
        const auto comma = name.find(',');
        return comma == std::string_view::npos ? std::nullopt : std::optional(std::string(trimmed(name.substr(comma + 1))));
    }
    const auto colon = name.find(':');
    if (colon == std::string_view::npos || colon == 0) return std::nullopt;
    const bool variable = std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(colon), [](char c) {
        return std::isupper(static_cast<unsigned char>(c)) != 0 || std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '_';
    });
    return variable ? std::optional(std::string(name.substr(colon + 1))) : std::nullopt;
}

class YamlWalk {
public:
    YamlWalk(Settings& settings, const std::string& where) : settings_(settings), where_(where) {}

    void walk(const YAML::Node& node, const std::string& name, int depth) {
        if (++seen_ > kMostValues || depth > kDeepest)
            throw ConfigError(fmt::format("{}: holds more than {} values, or sections more than {} deep; give the training's part alone",
                                          where_, kMostValues, kDeepest));
        if (node.IsMap()) {
            if (!name.empty()) settings_.set(name, "");
            for (const auto& entry : node) {
                if (!entry.first.IsScalar()) continue;
                if (entry.first.Scalar() == "<<" && entry.second.IsMap()) {
                    walk(entry.second, name, depth + 1);
                    continue;
                }
                walk(entry.second, name.empty() ? entry.first.Scalar() : name + "." + entry.first.Scalar(), depth + 1);
            }
        } else if (node.IsSequence()) {
            settings_.set(name, list_text(node, name, depth));
        } else {
            settings_.set(name, node.IsScalar() ? node.Scalar() : "");
        }
    }

private:
    /// Plain values in brackets; entries that are sections go below "name.0".
    std::string list_text(const YAML::Node& node, const std::string& name, int depth) {
        std::vector<std::string> values;
        std::size_t index = 0;
        for (const auto& entry : node) {
            if (entry.IsScalar())
                values.push_back(entry.Scalar());
            else
                walk(entry, fmt::format("{}.{}", name, index), depth + 1);
            ++seen_;
            ++index;
        }
        return fmt::format("[{}]", fmt::join(values, ", "));
    }

    Settings& settings_;
    const std::string& where_;
    std::size_t seen_ = 0;
};

}  // namespace

Settings Settings::of_yaml(std::string_view text, const std::string& where) {
    Settings settings;
    try {
        const YAML::Node root = YAML::Load(std::string(text));
        if (!root.IsMap()) throw ConfigError(fmt::format("{}: no mapping of names to values", where));
        YamlWalk(settings, where).walk(root, "", 0);
    } catch (const YAML::Exception& error) {
        throw ConfigError(fmt::format("{}:{}:{}: not valid YAML: {}", where, error.mark.line + 1, error.mark.column + 1, error.msg));
    }
    return settings;
}

Settings Settings::of_words(const std::vector<std::string>& words) {
    Settings settings;
    for (const std::string& word : words) {
        const auto equals = word.find('=');
        if (equals == std::string::npos || word.starts_with("--")) continue;
        const auto first = word.find_first_not_of('+');
        const std::string name = word.substr(first, equals - std::min(first, equals));
        const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
            return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '@' || c == '/';
        });
        if (plain) settings.set(name, std::string(without_quotes(std::string_view(word).substr(equals + 1))));
    }
    return settings;
}

std::string Settings::resolved(const std::string& value, int depth) const {
    std::string text;
    for (std::size_t at = 0; at < value.size();) {
        const auto open = value.find("${", at);
        const auto close = open == std::string::npos ? open : value.find('}', open);
        if (close == std::string::npos) return text + value.substr(at);
        text += value.substr(at, open - at);
        const std::string name = value.substr(open + 2, close - open - 2);
        const auto found = values_.find(name);
        // A variable of the environment is taken as not set. Calls ("${mul:2,4}") stay as they are: no value that they have is known.
        if (const auto otherwise = default_of_variable(name); found == values_.end() && otherwise)
            text += *otherwise;
        else if (found == values_.end() || depth >= kDeepestReference)
            text += value.substr(open, close - open + 1);
        else
            text += resolved(found->second, depth + 1);
        if (text.size() > 4096) return text.substr(0, 4096);
        at = close + 1;
    }
    return text;
}

std::optional<std::string> Settings::get(std::string_view name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return std::nullopt;
    std::string value = resolved(found->second, 0);
    if (is_absent(value)) return std::nullopt;
    return value;
}

std::optional<std::int64_t> Settings::whole(std::string_view name) const {
    const auto text = get(name);
    return text ? parse_integer(*text) : std::nullopt;
}

bool Settings::is_true(std::string_view name) const {
    const auto text = get(name);
    return text && lower_case(*text) == "true";
}

bool Settings::has_below(std::string_view beginning) const {
    const auto found = values_.lower_bound(beginning);
    return found != values_.end() && found->first.starts_with(beginning);
}

std::vector<std::pair<std::string, std::string>> Settings::directly_below(std::string_view section) const {
    std::vector<std::pair<std::string, std::string>> found;
    const std::string beginning = section.empty() ? "" : fmt::format("{}.", section);
    for (auto at = values_.lower_bound(beginning); at != values_.end() && at->first.starts_with(beginning); ++at) {
        const std::string name = at->first.substr(beginning.size());
        if (name.empty() || name.find('.') != std::string::npos) continue;
        const auto below = values_.upper_bound(at->first + ".");  // a section of its own has no value
        if (below != values_.end() && below->first.starts_with(at->first + ".")) continue;
        found.emplace_back(name, get(at->first).value_or(""));
    }
    return found;
}

}  // namespace mgplan::formats
