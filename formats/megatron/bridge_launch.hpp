#pragma once
// Launches of Megatron-Bridge that name one of its recipes: run_recipe.py --recipe NAME, and the scripts of scripts/performance, whose
// options select a recipe and change it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace mgplan::formats {

struct BridgeLaunch {
    std::string recipe;                  ///< its name, which the release need not have
    std::vector<std::string> overrides;  ///< section.field=value, in the order in which the script applies them
    std::optional<std::int64_t> world;   ///< GPUs that the command states
    std::vector<std::string> notes;      ///< sentences on facts that only a run of the script would reveal
};

/// The launch of a command's words; nothing where they name no recipe. Rules of scripts/performance (megatron-bridge 067f987d):
/// run_script.py (choice of the recipe), utils/overrides.py (set_user_overrides, set_post_overrides), argument_parser.py. Throws
/// ConfigError for values that the script refuses, MissingFactError for options that are not read or whose values are not known.
[[nodiscard]] std::optional<BridgeLaunch> read_bridge_launch(std::span<const std::string> words, const std::string& where);

}  // namespace mgplan::formats
