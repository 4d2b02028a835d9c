#pragma once
// The flags of Megatron-LM's command line: how many values each takes, and what it means for a prediction.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::importers {

enum class FlagArity : std::uint8_t { none, one, many };

enum class FlagEffect : std::uint8_t {
    used,          ///< interpreted (megatron_arguments.cpp)
    without,       ///< training goes on the same with or without it: names, paths, learning rates, logging
    not_computed,  ///< changes memory or time in a way that is not predicted yet
};

struct Flag {
    FlagArity arity;
    FlagEffect effect;
    std::string_view feature;  ///< of not_computed: what it is, in words
};

/// The flag of that name ("--num-layers"); nothing for names Megatron-LM does not have, or that are not in the table.
[[nodiscard]] std::optional<Flag> find_flag(std::string_view name);

/// All names in the table.
[[nodiscard]] std::vector<std::string> flag_names();

/// Words sorted by what they are. Of a flag given twice the last one counts, as in Python's argparse.
struct ParsedFlags {
    std::map<std::string, std::vector<std::string>, std::less<>> used;  ///< with "--"; values, empty for switches
    std::vector<std::string> without_effect;
    /// Values of those: what changes no prediction may still say what is trained (--init-method-std).
    std::map<std::string, std::vector<std::string>, std::less<>> without_effect_values;
    std::vector<std::string> not_computed;  ///< "Megatron FSDP (--use-megatron-fsdp)"
    std::vector<std::string> unknown;       ///< with their words up to the next "--"; also words that belong to no flag; the first hundred
};

/// Never fails: what is not known lands in `unknown`. Values behind "=" are taken too (--num-layers=32).
[[nodiscard]] ParsedFlags parse_flags(const std::vector<std::string>& words);

}  // namespace mgplan::importers
