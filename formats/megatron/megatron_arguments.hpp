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

namespace mgplan::formats {

/// What a launch script gets from outside.
struct ScriptInputs {
    std::optional<std::vector<std::string>> arguments;           ///< its positional parameters; nothing: they are not known
    std::vector<std::pair<std::string, std::string>> variables;  ///< these hold whatever the script assigns to them
    bool model_is_given = false;                                 ///< a command counts as well if it states a layout and no model
};

/// What helps to understand a command beside its text.
struct MegatronSurroundings {
    std::optional<std::int64_t> vocab{};             ///< counts instead of --vocab-size
    std::optional<std::int64_t> vocab_if_missing{};  ///< taken where nothing else tells the vocabulary
    /// Where files that the command names are looked for, and read: tokenizers, sourced scripts. "": none is.
    std::string folder{};
    ScriptInputs script{};
    std::optional<std::int64_t> world{};  ///< GPUs
    /// What of the command's layout and batch does not divide the world, a trace's own where none is given, is told beside what is wrong
    /// with its model.
    bool judges_sizes = false;
    HeldAgainst held_against = HeldAgainst::everything;  ///< whose rules about flags it obeys
    /// The model of a command that states none: its sizes become flags of the command, which the command's own flags replace.
    std::optional<ModelSpec> model{};
};

struct ArgumentWords {
    std::vector<std::string> words;                 ///< flags and their values in order
    std::string program{};                          ///< the Python file that takes them; "" where the text names none
    std::string launcher{};                         ///< the framework that adds flags by its own code (launcher_flags.hpp); "" for none
    std::vector<std::string> set_by_launcher{};     ///< those flags, which are among the words
    std::vector<std::string> notes;                 ///< sentences on what only running the script would tell
    std::vector<std::string> missing;               ///< problems: parts of the command that may hold flags and are not known
    std::map<std::string, std::string> unresolved;  ///< variables that stand in the words, and why their values are not known
    std::vector<std::string> sourced;               ///< texts of the sourced files that were read
    std::string not_sourced;                        ///< a sentence on the sourced files that are not at hand; "" where there is none
};

/// The words of a file of flags, split at white space and quotes as a shell does; of a script's command (shell_script.hpp); of YAML that
/// has a MODEL_ARGS mapping. Drops comments and line continuations. `where` names the source in errors; files that a script sources are
/// read where they stand in `folder` ("" reads none).
[[nodiscard]] ArgumentWords argument_words(std::string_view text, const std::string& where, const std::string& folder = "",
                                           const ScriptInputs& inputs = {});

/// Understands the words. Throws ConfigError with all problems (missing --num-layers, non-numbers, contradictions).
[[nodiscard]] Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where,
                                          const MegatronSurroundings& surroundings = {});

/// Both: the job that a text describes, with the words' notes.
[[nodiscard]] Job read_megatron_text(std::string_view text, const std::string& where, const MegatronSurroundings& surroundings = {});

}  // namespace mgplan::formats
