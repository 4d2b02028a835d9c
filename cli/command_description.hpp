#pragma once
// The option declarations as values: --help in other forms (JSON, the manual page, completion of shells).

#include <string>
#include <vector>

namespace mgplan::cli {

struct OptionDescription {
    std::string name;                ///< without dashes
    std::string value;               ///< how help names the value ("N", "FILE", "none|1f1b"); empty: a flag
    std::string help;                ///< one sentence
    std::string preset;              ///< the default as text; empty: none
    std::vector<std::string> words;  ///< the allowed values, if they are a choice
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
    std::vector<std::string> usage;  ///< one or more lines after "mgplan "
    std::string purpose;             ///< paragraphs, separated by empty lines
    std::vector<PositionalDescription> positionals;
    std::vector<OptionGroup> groups;

    bool operator==(const CommandDescription&) const = default;
};

/// Returns all commands in the order of the overview, each by its --help --format json. Defined in cli/command.cpp, with their table.
[[nodiscard]] std::vector<CommandDescription> describe_commands();

/// The JSON of --help --format json, for one command.
[[nodiscard]] std::string to_json(const CommandDescription& command);
/// The inverse of to_json.
[[nodiscard]] CommandDescription command_from_json(const std::string& json);

}  // namespace mgplan::cli
