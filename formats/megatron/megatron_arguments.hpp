#pragma once
// Megatron-LM's command line as users hold it: a file of flags, a shell script's array, or YAML with MODEL_ARGS.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/input/job.hpp"
#include "formats/megatron/argument_rules.hpp"
#include "formats/megatron/launch_world.hpp"

namespace mgplan::formats {

/// Inputs of a launch script from outside.
struct ScriptInputs {
    std::optional<std::vector<std::string>> arguments;           ///< its positional parameters; nothing: they are not known
    std::vector<std::pair<std::string, std::string>> variables;  ///< these hold whatever the script assigns to them
    bool model_is_given = false;                                 ///< a command counts as well if it states a layout and no model
};

/// Facts besides its text that help to understand a command.
struct MegatronSurroundings {
    std::optional<std::int64_t> vocab{};             ///< counts instead of --vocab-size
    std::optional<std::int64_t> vocab_if_missing{};  ///< taken where nothing else gives the vocabulary
    /// Folder from which files that the command names are read: tokenizers, sourced scripts. "": none is.
    std::string folder{};
    ScriptInputs script{};
    std::optional<std::int64_t> world{};  ///< GPUs
    /// If true, sizes of the command's layout and batch (a trace's own where none is given) that do not divide the world are reported
    /// together with the problems of its model.
    bool judges_sizes = false;
    HeldAgainst held_against = HeldAgainst::everything;  ///< set of rules about flags that it has to obey
    std::optional<int> compute_capability{};             ///< of the GPUs
    std::map<std::string, std::string> environment{};    ///< as far as it is known
    /// The model of a command that states none: its sizes become flags of the command, which the command's own flags replace.
    std::optional<ModelSpec> model{};
};

struct ArgumentWords {
    std::vector<std::string> words;                    ///< flags and their values in order
    std::string program{};                             ///< the Python file that takes them; "" if the text names none
    std::string launcher{};                            ///< the framework that adds flags by its own code (launcher_flags.hpp); "" for none
    std::vector<std::string> assumptions{};            ///< sentences: those flags, which are among the words, and what it does not read
    std::vector<std::string> notes;                    ///< sentences on facts that only a run of the script would reveal
    std::vector<std::string> missing;                  ///< problems: parts of the command that may hold flags and are not known
    std::map<std::string, std::string> unresolved;     ///< variables in the words without a known value, and why
    std::vector<std::string> sourced;                  ///< texts of the sourced files that were read
    std::string not_sourced;                           ///< a sentence on the sourced files that are not available; "" where there is none
    LaunchWorld world{};                               ///< that the command's launcher starts
    std::map<std::string, std::string> environment{};  ///< variables that rules read, with the values that the text gives them
};

/// The words of a file of flags, split at white space and quotes as a shell does; of a script's command (shell_script.hpp); of YAML that
/// has a MODEL_ARGS mapping. Drops comments and line continuations. `where` names the source in errors; files that a script sources are
/// read from `folder`, at the place of the source command ("" reads none).
[[nodiscard]] ArgumentWords argument_words(std::string_view text, const std::string& where, const std::string& folder = "",
                                           const ScriptInputs& inputs = {});

/// Understands the words. Throws ConfigError with all problems (missing --num-layers, non-numbers, contradictions).
[[nodiscard]] Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where,
                                          const MegatronSurroundings& surroundings = {});

/// Both: the job that a text describes, with the words' notes.
[[nodiscard]] Job read_megatron_text(std::string_view text, const std::string& where, const MegatronSurroundings& surroundings = {});

}  // namespace mgplan::formats
