#include <string>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.hpp"
#include "cli/command_description.hpp"
#include "cli/options.hpp"
#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

enum class Shell { bash, zsh, fish };

/// Names that completion offers besides the declarations.
struct PresetNames {
    std::vector<std::string> models;
    std::vector<std::string> clusters;
};

/// Words that may follow an option, or replace a word without dashes.
struct Values {
    std::vector<std::string> words;
    bool takes_list = false;
    bool takes_files = false;
};

bool names_files(std::string_view value) {
    return value.find("FILE") != std::string_view::npos || value.find("DIR") != std::string_view::npos || value.starts_with("PLAN") ||
           value == "CFG";
}

Values values_of(const OptionDescription& option, const PresetNames& presets) {
    Values values{option.words, option.takes_list, names_files(option.value)};
    if (option.name == "model") values.words = presets.models;
    if (option.name == "cluster") values.words = presets.clusters;
    return values;
}

/// Words for the arguments without dashes; `show NAME` is a word and a name.
Values values_of(const CommandDescription& command, const PresetNames& presets) {
    Values values;
    for (const auto& word : command.positionals) {
        if (word.name.starts_with("show ")) {
            values.words = command.name == "clusters" ? presets.clusters : presets.models;
            values.words.insert(values.words.begin(), "show");
            values.takes_files = true;
        } else if (names_files(word.name)) {
            values.takes_files = true;
        } else {
            values.words = split(word.name, '|');
        }
    }
    return values;
}

/// Quotes text for any of the shells; characters that single quotes cannot hold are replaced.
std::string single_quoted(std::string_view text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("’") : c == '\n' ? std::string(" ") : std::string(1, c);
    return out + "'";
}

std::string all_options(const CommandDescription& command) {
    std::string text;
    for (const auto& group : command.groups) {
        for (const auto& option : group.options) text += fmt::format("{}--{}", text.empty() ? "" : " ", option.name);
    }
    return text;
}

std::string bash_script(const std::vector<CommandDescription>& commands, const PresetNames& presets) {
    std::string names;
    for (const auto& command : commands) names += command.name + " ";
    const auto set = [](const Values& values) {
        return fmt::format("words={}{}{}", single_quoted(fmt::format("{}", fmt::join(values.words, " "))),
                           values.takes_list ? " list=1" : "", values.takes_files ? " files=1" : "");
    };
    std::string text = R"(# Completion of mgplan for bash. Written by: mgplan completion bash
_mgplan() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local words= options= list= files= before= line
    # bash takes --option=value for three words.
    if [[ $current == = ]]; then
        current=
    elif [[ $previous == = ]]; then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if ((COMP_CWORD == 1)) || [[ $command == -* ]]; then command=plan; fi
    if ((COMP_CWORD == 1)) && [[ $current != -* ]]; then
)";
    text += fmt::format("        words={}\n    else\n        case $command in\n", single_quoted(names + "help"));
    for (const auto& command : commands) {
        text += fmt::format("            {})\n                options={}\n                case $previous in\n", command.name,
                            single_quoted(all_options(command)));
        for (const auto& group : command.groups) {
            for (const auto& option : group.options) {
                if (!option.value.empty())
                    text += fmt::format("                    --{}) options= {} ;;\n", option.name, set(values_of(option, presets)));
            }
        }
        text += fmt::format("                    *) {} ;;\n                esac\n                ;;\n", set(values_of(command, presets)));
    }
    text += fmt::format("            help) words={} ;;\n", single_quoted(names));
    text += R"(        esac
    fi
    if [[ $current == -* ]]; then words=$options files=; fi
    if [[ $list && $current == *,* ]]; then
        before=${current%,*},
        current=${current##*,}
    fi
    COMPREPLY=()
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -P "$before" -W "$words" -- "$current")
    if [[ $files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$current")
    fi
}
complete -F _mgplan mgplan ./mgplan
)";
    return text;
}

/// Text inside a specification of zsh's _arguments.
std::string zsh_text(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
        out += c;
    }
    return out;
}

std::string zsh_action(const Values& values) {
    const std::string words = fmt::format("{}", fmt::join(values.words, " "));
    if (values.words.empty()) return values.takes_files ? "_files" : " ";
    if (values.takes_files) return fmt::format("{{compadd -- {}; _files}}", words);
    if (values.takes_list) return fmt::format("{{_values -s , value {}}}", words);
    return fmt::format("({})", words);
}

std::string zsh_script(const std::vector<CommandDescription>& commands, const PresetNames& presets) {
    std::string text =
        "#compdef mgplan\n# Completion of mgplan for zsh. Written by: mgplan completion zsh\n_mgplan() {\n    local -a commands=(\n";
    for (const auto& command : commands) text += fmt::format("        {}\n", single_quoted(command.name + ":" + command.summary));
    text += R"(    )
    local command=plan
    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
        _describe command commands
        return
    fi
    if [[ $words[2] != -* ]]; then
        command=$words[2]
        shift words
        (( CURRENT-- ))
    fi
    case $command in
)";
    for (const auto& command : commands) {
        text += fmt::format("        {})\n            _arguments \\\n", command.name);
        for (const auto& group : command.groups) {
            for (const auto& option : group.options) {
                std::string line = fmt::format("--{}[{}]", option.name, zsh_text(option.help));
                if (!option.value.empty()) line += fmt::format(":{}:{}", zsh_text(option.value), zsh_action(values_of(option, presets)));
                text += fmt::format("                {} \\\n", single_quoted(line));
            }
        }
        // A message in place of an action would keep zsh from completing options, so only what has an action is named.
        const Values words = values_of(command, presets);
        if (words.takes_files || !words.words.empty())
            text += fmt::format("                {} \\\n", single_quoted("*:word:" + zsh_action(words)));
        text += "                && return\n            ;;\n";
    }
    text +=
        "    esac\n}\n# Both as a file of $fpath and sourced.\nif [[ $funcstack[1] == _mgplan ]]; then _mgplan \"$@\"; else compdef "
        "_mgplan mgplan; fi\n";
    return text;
}

std::string fish_script(const std::vector<CommandDescription>& commands, const PresetNames& presets) {
    std::string text = "# Completion of mgplan for fish. Written by: mgplan completion fish\ncomplete -c mgplan -f\n";
    std::string others;
    for (const auto& command : commands) {
        text += fmt::format("complete -c mgplan -n __fish_use_subcommand -a {} -d {}\n", command.name, single_quoted(command.summary));
        if (command.name != "plan") others += " " + command.name;
    }
    for (const auto& command : commands) {
        const std::string where =
            command.name == "plan" ? "not __fish_seen_subcommand_from" + others : "__fish_seen_subcommand_from " + command.name;
        const std::string start = fmt::format("complete -c mgplan -n {}", single_quoted(where));
        const auto offer = [](const Values& values) {
            std::string line = values.takes_files ? " -F" : " -f";
            if (values.words.empty()) return line;
            const std::string words = fmt::format("{}", fmt::join(values.words, " "));
            return line + " -a " + single_quoted(values.takes_list ? fmt::format("(__fish_append , {})", words) : words);
        };
        for (const auto& group : command.groups) {
            for (const auto& option : group.options) {
                text += fmt::format("{} -l {}{} -d {}\n", start, option.name,
                                    option.value.empty() ? "" : " -r" + offer(values_of(option, presets)), single_quoted(option.help));
            }
        }
        if (const Values words = values_of(command, presets); words.takes_files || !words.words.empty()) {
            text += fmt::format("{}{}\n", start, offer(words));
        }
    }
    return text;
}

/// A script that, once sourced, completes commands, options and what they take: words, preset names, files. A command line
/// without a command is one of plan, as in mgplan itself.
std::string shell_completion(Shell shell, const std::vector<CommandDescription>& commands, const PresetNames& presets) {
    switch (shell) {
        case Shell::bash:
            return bash_script(commands, presets);
        case Shell::zsh:
            return zsh_script(commands, presets);
        case Shell::fish:
            return fish_script(commands, presets);
    }
    return {};
}

}  // namespace

int run_completion(const std::vector<std::string>& args, Console& console, DescribeCommands describe) {
    std::vector<std::string> words;
    Options options("completion bash|zsh|fish",
                    "Prints a script that completes mgplan's commands, options and preset names:\n\n"
                    "  bash  source <(mgplan completion bash)\n"
                    "  zsh   source <(mgplan completion zsh), after compinit\n"
                    "  fish  mgplan completion fish | source");
    options.positional("bash|zsh|fish", words, 1, "the shell to write for");
    if (!options.parse(args, console.out)) return kDone;
    const auto shell = [&] {
        if (words.empty()) throw ConfigError("completion needs a shell; write mgplan completion bash, zsh or fish");
        if (words[0] == "bash") return Shell::bash;
        if (words[0] == "zsh") return Shell::zsh;
        if (words[0] == "fish") return Shell::fish;
        throw ConfigError(fmt::format("completion: shell '{}' is not known; use bash, zsh or fish", words[0].substr(0, 60)));
    }();
    options.write(console, shell_completion(shell, describe(), {formats::preset_names(), cluster_preset_names()}));
    return kDone;
}

}  // namespace mgplan::cli
