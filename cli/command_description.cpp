#include "cli/command_description.hpp"

#include <nlohmann/json.hpp>

namespace mgplan::cli {

// In the types' namespace, where the library finds them.
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

}  // namespace mgplan::cli
