#pragma once
// Advice of layout rules in the flags of a Megatron-LM command, for those who brought one.

#include <string>
#include <string_view>

namespace mgplan::formats {

/// The text of a broken rule (planner/constraints.hpp, plan/layout/stage_split.hpp) with mgplan's options, and its names for layer
/// splits, replaced by Megatron-LM's flags.
[[nodiscard]] std::string in_megatron_words(std::string_view rule);

}  // namespace mgplan::formats
