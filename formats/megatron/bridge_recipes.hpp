#pragma once
// The recipes that a release of Megatron-Bridge ships: facts that tests/megatron/read_bridge_recipes.py reads from its wheel
// (configs/recipes).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/megatron_job.hpp"

namespace mgplan::formats {

/// One function of the wheel that returns a ConfigContainer.
struct BridgeRecipe {
    std::string name;
    std::string model;                 ///< repository on the Hugging Face hub; "": the recipe writes the model's sizes itself
    std::string task;                  ///< "pretrain", "sft", "peft" or "performance"
    std::string gpu;                   ///< "GB300"; "": not stated
    std::optional<std::int64_t> gpus;  ///< GPUs that the recipe is made for; nothing: not stated
    std::string precision;             ///< a word of --precision; "": not stated
    std::string source;                ///< module of the wheel below megatron.bridge

    /// Every field that the recipe assigns, its value as JSON: {"model.tensor_model_parallel_size", "8"}.
    [[nodiscard]] std::map<std::string, std::string, std::less<>> settings() const;
};

struct BridgeRecipes {
    std::string release;                              ///< "megatron-bridge 0.6.2"
    std::vector<BridgeRecipe> recipes;                ///< by name
    std::map<std::string, std::string> not_recorded;  ///< recipes that the script cannot read, and why

    /// Null for another name.
    [[nodiscard]] const BridgeRecipe* find(std::string_view name) const;
};

/// All recipes of the release that this build holds.
[[nodiscard]] const BridgeRecipes& bridge_recipes();

/// False if no recipe of the release is for this number of GPUs. It searches the text of the data, which is cheaper than reading it.
[[nodiscard]] bool has_recipe_for(std::int64_t gpus);

/// The recipe as a configuration of Megatron-Bridge (read_bridge_config). `model`: flags of the model that it names; null where it writes
/// the sizes itself. `model_type` selects the constants that the wheel's converter sets for that type of model.
[[nodiscard]] std::string bridge_recipe_config(const BridgeRecipe& recipe, const MegatronFlags* model, const std::string& model_type);

}  // namespace mgplan::formats
