#include "formats/megatron/script_surroundings.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>

#include "formats/megatron/shell_words.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"

namespace mgplan::formats {
namespace {

/// "--nodes=4", "--nodes 4" and "-N 4" as 4; of "h100:8" the number after the colon.
std::optional<std::int64_t> directive_value(const std::vector<std::string>& words, std::string_view name, std::string_view letter) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        std::string value;
        if (words[i].starts_with(std::string(name) + "="))
            value = words[i].substr(name.size() + 1);
        else if ((words[i] == name || (!letter.empty() && words[i] == letter)) && i + 1 < words.size())
            value = words[i + 1];
        else if (!letter.empty() && words[i].starts_with(letter) && words[i].size() > letter.size())
            value = words[i].substr(letter.size());
        else
            continue;
        if (const auto colon = value.rfind(':'); colon != std::string::npos) value = value.substr(colon + 1);
        const auto number = parse_integer(value);
        return number && *number > 0 && *number < (std::int64_t{1} << 30) ? number : std::nullopt;
    }
    return std::nullopt;
}

std::string_view name_at(std::string_view text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && is_name(text[end])) ++end;
    return text.substr(at, end - at);
}

/// Names that an arithmetic expression assigns to: X=…, X+=…, X++, --X.
void add_assigned(std::vector<std::string>& names, std::string_view expression) {
    for (std::size_t at = 0; at < expression.size();) {
        const std::string_view name = name_at(expression, at);
        if (name.empty()) {
            ++at;
            continue;
        }
        const std::string_view before = expression.substr(0, at);
        at += name.size();
        std::string_view behind = expression.substr(at);
        while (behind.starts_with(' ')) behind.remove_prefix(1);
        bool sets = behind.starts_with("++") || behind.starts_with("--") || before.ends_with("++") || before.ends_with("--");
        if (!behind.empty() && std::string_view("+-*/%&|^").find(behind[0]) != std::string_view::npos) behind.remove_prefix(1);
        sets = sets || (behind.starts_with('=') && !behind.starts_with("=="));
        if (sets && std::isdigit(static_cast<unsigned char>(name[0])) == 0) names.emplace_back(name);
    }
}

/// Names that an arithmetic expression reads, with or without $.
void add_operands(std::vector<std::string>& names, std::string_view expression) {
    for (std::size_t at = 0; at < expression.size();) {
        const std::string_view name = name_at(expression, at);
        if (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0) names.emplace_back(name);
        at += std::max<std::size_t>(name.size(), 1);
    }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> slurm_variables(std::string_view script) {
    std::vector<std::string> words;
    for (std::size_t at = 0; at < script.size();) {
        const std::size_t end = std::min(script.find('\n', at), script.size());
        const std::string_view line = script.substr(at, end - at);
        at = end + 1;
        constexpr std::string_view kDirective = "#SBATCH ";
        if (!line.starts_with(kDirective)) continue;
        std::string rest(line.substr(kDirective.size()));
        std::replace_if(
            rest.begin(), rest.end(), [](char c) { return is_blank(c) || c == '"'; }, ' ');
        for (auto& word : split(rest, ' ')) {
            if (word.starts_with('#')) break;
            if (!word.empty()) words.push_back(std::move(word));
        }
    }
    std::vector<std::pair<std::string, std::string>> variables;
    const auto set = [&](std::string_view name, const std::optional<std::int64_t>& value) {
        if (value) variables.emplace_back(name, std::to_string(*value));
    };
    const auto nodes = directive_value(words, "--nodes", "-N");
    const auto tasks_per_node = directive_value(words, "--ntasks-per-node", "");
    auto tasks = directive_value(words, "--ntasks", "-n");
    if (!tasks && nodes && tasks_per_node) tasks = *nodes * *tasks_per_node;
    for (const auto* name : {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}) set(name, nodes);
    for (const auto* name : {"SLURM_NTASKS", "SLURM_NPROCS"}) set(name, tasks);
    set("SLURM_NTASKS_PER_NODE", tasks_per_node);
    set("SLURM_CPUS_PER_TASK", directive_value(words, "--cpus-per-task", "-c"));
    for (const auto* name : {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"}) set(name, directive_value(words, "--gpus-per-node", ""));
    return variables;
}

std::vector<std::string> variables_set_by(std::string_view line) {
    std::vector<std::string> names;
    std::vector<std::string> words;
    for (std::size_t at = 0; at < line.size() && words.size() < 16;) {
        const std::size_t begin = std::min(line.find_first_not_of(" \t\r\n;", at), line.size());
        const std::size_t end = std::min(line.find_first_of(" \t\r\n;", begin), line.size());
        if (end > begin) words.emplace_back(line.substr(begin, end - begin));
        at = end;
    }
    std::size_t first = 0;
    while (first < words.size() && (words[first] == "while" || words[first] == "until")) ++first;
    if (first + 1 < words.size()) {
        const std::string& verb = words[first];
        const bool loop = verb == "for" || verb == "select";
        if (loop || verb == "read" || verb == "unset") {
            for (std::size_t i = first + 1; i < (loop ? first + 2 : words.size()); ++i) {
                if (words[i].starts_with('<') || words[i] == "do") break;
                if (!words[i].empty() && name_at(words[i], 0) == words[i]) names.push_back(words[i]);
            }
        }
        if (verb == "let") add_assigned(names, line);
    }
    for (std::size_t at = line.find("(("); at != std::string_view::npos; at = line.find("((", at + 2)) {
        if (at > 0 && line[at - 1] == '$') continue;
        const std::size_t end = std::min(line.find("))", at), line.size());
        add_assigned(names, line.substr(at, end - at));
        at = std::max(at, end) - 2;
        if (end == line.size()) break;
    }
    return names;
}

std::vector<std::string> variables_in(std::string_view text) {
    std::vector<std::string> names;
    for (std::size_t at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
        if (text.substr(at).starts_with("$((")) {
            const std::size_t length = substitution_length(text.substr(at));
            add_operands(names, text.substr(at, length));
            at += std::max<std::size_t>(length, 1) - 1;
            continue;
        }
        const std::size_t start = at + 1 < text.size() && text[at + 1] == '{' ? at + 2 : at + 1;
        if (const std::string_view name = name_at(text, std::min(start, text.size())); !name.empty()) names.emplace_back(name);
    }
    return names;
}

std::string_view sourced_path(std::string_view line) {
    if (line.starts_with("source ") || line.starts_with("source\t"))
        line.remove_prefix(7);
    else if (line.starts_with(". "))
        line.remove_prefix(2);
    else
        return {};
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    // Up to the first blank outside a command substitution: $(dirname "$0")/common.sh.
    std::size_t end = 0;
    while (end < line.size() && !is_blank(line[end]) && line[end] != ';' && line[end] != '&' && line[end] != '|')
        end += std::max<std::size_t>(substitution_length(line.substr(end, 4096)), 1);
    line = line.substr(0, end);
    while (!line.empty() && (line.front() == '"' || line.front() == '\'')) line.remove_prefix(1);
    while (!line.empty() && (line.back() == '"' || line.back() == '\'')) line.remove_suffix(1);
    return line;
}

bool sets_no_flags(std::string_view path) {
    if (path.starts_with("/etc/")) return true;
    const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
    for (const std::string_view own : {"activate", ".bashrc", ".bash_profile", ".profile", "conda.sh"}) {
        if (name == own) return true;
    }
    return false;
}

std::optional<std::string> sourced_file(const std::string& path, const std::string& folder) {
    namespace fs = std::filesystem;
    if (folder.empty() || path.empty()) return std::nullopt;
    // A computed beginning is mostly the script's own folder: what follows is looked up there.
    std::string below = path;
    if (const std::size_t computed = path.find_last_of("$`)}"); computed != std::string::npos && path.find_first_of("$`") <= computed)
        below.erase(0, path.find_first_not_of('/', std::min(path.find('/', computed), path.size())));
    const fs::path given(path);
    for (const fs::path& candidate : {below.empty() ? fs::path() : fs::path(folder) / below, fs::path(folder) / given.filename()}) {
        std::error_code failed;
        if (candidate.empty() || !fs::is_regular_file(candidate, failed)) continue;
        try {
            return read_text_file(candidate.string(), "sourced", std::size_t{1} << 20U);
        } catch (const ConfigError&) {
            return std::nullopt;  // unreadable or too long: reported as not available
        }
    }
    return std::nullopt;
}

}  // namespace mgplan::formats
