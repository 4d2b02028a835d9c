#pragma once
// The flags of Megatron-LM's command line: how many values each takes, and what it means for a prediction.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/input/flag_account.hpp"

namespace mgplan::formats {

enum class FlagArity : std::uint8_t { none, one, many };

enum class FlagEffect : std::uint8_t {
    used,          ///< interpreted (megatron_arguments.cpp)
    without,       ///< training goes on the same with or without it: names, paths, learning rates, logging
    not_computed,  ///< changes memory or time in a way that is not predicted yet
};

struct Flag {
    FlagArity arity;
    FlagEffect effect;
    /// Describes a flag of not_computed in words; for flags used "layout" where a search chooses instead, and "length of training".
    std::string_view feature;
    Decides decides;  ///< of not_computed
    bool read;        ///< interpreted: all that are used, and others for export and mgplan's own runs
};

/// The flag of that name ("--num-layers"); nothing for names Megatron-LM does not have, or that are not in the table.
[[nodiscard]] std::optional<Flag> find_flag(std::string_view name);

/// All names in the table.
[[nodiscard]] std::vector<std::string> flag_names();

/// Words sorted by what they are. A flag given twice counts by the last one, as in Python's argparse.
struct ParsedFlags {
    std::map<std::string, std::vector<std::string>, std::less<>> used;      ///< all that are read, with "--"; values, empty for switches
    std::map<std::string, std::vector<std::string>, std::less<>> not_read;  ///< the other flags that are known, in the same form
    FlagAccount account;                                                    ///< of all flags; its `used` are as the command spells them
};

/// The other name of a switch: "--disable-x" of "--no-x" and the reverse, as Megatron-LM's argument factory makes both of each
/// (argument_utils.py); "" for other flags.
[[nodiscard]] std::string other_spelling(std::string_view name);

/// The account of a search, which takes model, batch and training from a command, and of its layout what it does not choose itself (CUDA
/// graphs, recomputed modules and layers, the order of axes): the others are `searched`. How long training goes on has no effect on it.
[[nodiscard]] FlagAccount without_layout_flags(FlagAccount account);

/// Never fails: unknown words go to `account.unknown`. Values after "=" are taken too (--num-layers=32).
[[nodiscard]] ParsedFlags parse_flags(const std::vector<std::string>& words);

}  // namespace mgplan::formats
