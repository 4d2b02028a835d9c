#pragma once
// The table of Megatron-LM's flags, in groups.

#include <span>
#include <string_view>

#include "formats/megatron/megatron_flags.hpp"

namespace mgplan::formats {

/// Flags that share arity and effect, without their "--", separated by blanks.
struct FlagGroup {
    FlagArity arity;
    FlagEffect effect;
    std::string_view feature;
    std::string_view names;
    Decides decides = Decides::fit;  ///< of not_computed
    /// Purpose for which flags without a row (flag_rows.hpp) are read; "": they are not read. Those that have a row are in any case.
    std::string_view read_for = "";
};

/// Flags that are interpreted and have no row, and those whose rows a search sets itself.
[[nodiscard]] std::span<const FlagGroup> used_flag_groups();
/// Flags that change memory, time or legality in a way that is not predicted: of Megatron-LM, and of well-known forks.
[[nodiscard]] std::span<const FlagGroup> not_computed_flag_groups();
/// Flags that change nothing of a prediction.
[[nodiscard]] std::span<const FlagGroup> flag_groups_without_effect();

}  // namespace mgplan::formats
