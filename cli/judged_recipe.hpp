#pragma once
// Verdicts of `mgplan check` on the recipes that Megatron-Bridge ships.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/megatron/bridge_recipes.hpp"

namespace mgplan::cli {

enum class RecipeVerdict : std::uint8_t { runs, illegal, does_not_fit, cannot_say };
/// "runs", "illegal", "does not fit", "cannot say"
[[nodiscard]] std::string_view name_of(RecipeVerdict verdict);

struct JudgedRecipe {
    const formats::BridgeRecipe* recipe = nullptr;
    std::string preset, cluster;  ///< that stand for its model and GPUs; "" where none does
    RecipeVerdict verdict = RecipeVerdict::cannot_say;
    std::string kind;                   ///< of the reason that nothing can be said, in a few fixed words
    std::vector<std::string> problems;  ///< broken rules, or why nothing can be said
    std::vector<std::string> not_computed, unknown;
    std::string layout;             ///< in one line; "" where it is not legal
    std::optional<double> seconds;  ///< of a step
    std::int64_t peak_bytes = 0, limit_bytes = 0;
};

/// The recipe of that name, with or without "_config". Throws ConfigError with the nearest names, or why it is not recorded.
[[nodiscard]] const formats::BridgeRecipe& named_recipe(const std::string& given);

/// The preset of the repository that the recipe names, and the cluster preset of its GPU; "" where there is none.
[[nodiscard]] std::string preset_of(const formats::BridgeRecipe& recipe);
[[nodiscard]] std::string cluster_of(const formats::BridgeRecipe& recipe);

/// True for a model that reads or makes images or sound, as its family says, though its language model may have a preset.
[[nodiscard]] bool trains_other_encoders(const formats::BridgeRecipe& recipe);

/// The recipe with its model's sizes, as `mgplan check --bridge-config` reads it. Throws ConfigError where Megatron-LM's flags do not
/// describe the preset.
[[nodiscard]] std::string recipe_config(const formats::BridgeRecipe& recipe);

[[nodiscard]] JudgedRecipe judge_recipe(const formats::BridgeRecipe& recipe);
/// Several at once, on all cores, in the order given.
[[nodiscard]] std::vector<JudgedRecipe> judge_recipes(const std::vector<const formats::BridgeRecipe*>& recipes);

}  // namespace mgplan::cli
