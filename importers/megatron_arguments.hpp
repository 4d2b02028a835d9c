#pragma once
// Megatron-LM's command line as users hold it: a file of flags, a shell script's array, or YAML with MODEL_ARGS.

#include <string>
#include <string_view>
#include <vector>

#include "importers/job.hpp"

namespace mgplan::importers {

struct ArgumentWords {
    std::vector<std::string> words;  ///< flags and their values in order
    std::vector<std::string> notes;  ///< sentences on what only running the script would tell
};

/// The words of a file of flags, split at white space and quotes as a shell does; of a script's command (shell_script.hpp); of YAML that
/// has a MODEL_ARGS mapping. Drops comments and line continuations. `where` names the source in errors.
[[nodiscard]] ArgumentWords argument_words(std::string_view text, const std::string& where);

/// Understands the words. Throws ConfigError with all problems (missing --num-layers, non-numbers, contradictions).
[[nodiscard]] Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where);

/// Both: the job that a text describes, with the words' notes.
[[nodiscard]] Job read_megatron_text(std::string_view text, const std::string& where);

}  // namespace mgplan::importers
