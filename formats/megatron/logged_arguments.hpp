#pragma once
// The arguments that Megatron-LM prints when a job starts (arguments.py, _print_args): one "name ..... value" a line, in the names of
// argparse and with the values that validate_args left.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::formats {

struct LoggedArguments {
    std::vector<std::string> words;     ///< flags and values that say the same
    std::optional<std::int64_t> world;  ///< world_size
    std::vector<std::string> left_out;  ///< "name value" of arguments that the prediction does not follow and that may matter
};

/// The arguments of the last job that the log holds; nothing where it prints none. Values that Megatron-LM derives from others, and those
/// of parts that the model does not have, are left out. The vocabulary is the tokenizer's own line, "> padded vocab (size: 50257)". Throws
/// ConfigError for arguments that are no such lines.
[[nodiscard]] std::optional<LoggedArguments> logged_arguments(std::string_view text, const std::string& where);

}  // namespace mgplan::formats
