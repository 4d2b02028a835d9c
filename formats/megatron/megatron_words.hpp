#pragma once
// Messages in the words of those who read them: advice of layout rules in Megatron-LM's flags, and problems of flags in the settings of a
// file that was turned into flags.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/megatron_arguments.hpp"

namespace mgplan::formats {

/// The text of a broken rule (planner/constraints.hpp, plan/layout/stage_split.hpp) with mgplan's options, and its names for layer
/// splits, replaced by Megatron-LM's flags.
[[nodiscard]] std::string in_megatron_words(std::string_view rule);

/// Returns the setting that says what a flag ("--num-layers") says; the flag itself where none does.
using SettingOfFlag = std::function<std::string(const std::string& flag)>;
/// The text with settings in place of flags.
[[nodiscard]] std::string in_settings(std::string_view text, const SettingOfFlag& setting_of);
/// read_megatron_arguments() whose problems and assumptions name settings in place of flags.
[[nodiscard]] Job read_settings_as_arguments(const std::vector<std::string>& words, const std::string& where,
                                             const MegatronSurroundings& surroundings, const SettingOfFlag& setting_of);

}  // namespace mgplan::formats
