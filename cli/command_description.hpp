#pragma once
// What the option declarations say, as values: --help in other forms (JSON, completion of shells).

#include <string>
#include <vector>

namespace mgplan::cli {

struct OptionDescription {
    std::string name;                ///< without dashes
    std::string value;               ///< how help names the value ("N", "FILE", "none|1f1b"); empty: a flag
    std::string help;                ///< one sentence
    std::string preset;              ///< the default as text; empty: none
    std::vector<std::string> words;  ///< what the value may be, where that is a choice
    bool takes_list = false;         ///< of those words, separated by commas

    bool operator==(const OptionDescription&) const = default;
};

struct OptionGroup {
    std::string title;
    std::vector<OptionDescription> options;

    bool operator==(const OptionGroup&) const = default;
};

/// A word without dashes.
struct PositionalDescription {
    std::string name;
    std::string help;

    bool operator==(const PositionalDescription&) const = default;
};

struct CommandDescription {
    std::string name;
    std::string summary;             ///< a line for the overview
    std::vector<std::string> usage;  ///< one or more lines behind "mgplan "
    std::string purpose;             ///< paragraphs, separated by empty lines
    std::vector<PositionalDescription> positionals;
    std::vector<OptionGroup> groups;

    bool operator==(const CommandDescription&) const = default;
};

/// All commands in the order of the overview, each asked for its --help --format json. Stands beside their table, in cli/command.cpp.
[[nodiscard]] std::vector<CommandDescription> describe_commands();

/// The JSON of --help --format json, for one command.
[[nodiscard]] std::string to_json(const CommandDescription& command);
/// The inverse of to_json.
[[nodiscard]] CommandDescription command_from_json(const std::string& json);

}  // namespace mgplan::cli
