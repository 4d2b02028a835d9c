#pragma once
// Megatron-LM's command line as users hold it: a file of flags, a shell script's array, or YAML with MODEL_ARGS.

#include <string>
#include <string_view>
#include <vector>

#include "importers/job.hpp"

namespace mgplan::importers {

/// Splits `text` at white space and quotes as a shell does, no other character special; takes what a script holds
/// between `NAME=(` and `)`, drops comments and line continuations; reads YAML when it has a MODEL_ARGS mapping.
/// Returns words: flags and their values in order. `where` names the source in errors.
[[nodiscard]] std::vector<std::string> argument_words(std::string_view text, const std::string& where);

/// Understands the words. Throws ConfigError with all problems (missing --num-layers, non-numbers, contradictions).
[[nodiscard]] Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where);

}  // namespace mgplan::importers
