#include <string>
#include <vector>

#include <fmt/core.h>

#include "cli/command.hpp"
#include "cli/command_description.hpp"
#include "cli/options.hpp"
#include "cli/shell_completion.hpp"
#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {

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
