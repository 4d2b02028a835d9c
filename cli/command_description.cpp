#include "cli/command_description.hpp"

#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/command.hpp"

namespace mgplan::cli {

// For the library to find, beside the types.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OptionDescription, name, value, help, preset, words, takes_list)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OptionGroup, title, options)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PositionalDescription, name, help)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CommandDescription, name, summary, usage, purpose, positionals, groups)

std::string to_json(const CommandDescription& command) {
    return nlohmann::json(command).dump(2) + "\n";
}

CommandDescription command_from_json(const std::string& json) {
    return nlohmann::json::parse(json).get<CommandDescription>();
}

std::vector<CommandDescription> describe_commands() {
    std::vector<CommandDescription> described;
    for (const auto& command : commands()) {
        std::ostringstream out;
        std::ostringstream err;
        Console console{out, err};
        command.run({"--help", "--format", "json"}, console);
        described.push_back(command_from_json(out.str()));
        described.back().name = command.name;
        described.back().summary = command.summary;
    }
    return described;
}

}  // namespace mgplan::cli
