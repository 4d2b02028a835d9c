#pragma once
// The recipe that NVIDIA ships for a job, whose layout a table of plans names.

#include <optional>

#include "formats/megatron/bridge_recipes.hpp"
#include "plan/workload.hpp"
#include "planner/plan_reasons.hpp"

namespace mgplan::cli {

struct RecipeOfJob {
    const formats::BridgeRecipe* recipe = nullptr;
    planner::RecipeSizes sizes;
};

/// The recipe that pre-trains this preset on this number of these GPUs, in the job's precision and with sequences at most twice as long or
/// short: of several the one with the nearest batch that is no variant for development. Nothing if the model is no preset, or no such
/// recipe is shipped.
[[nodiscard]] std::optional<RecipeOfJob> recipe_of(const Workload& workload);

}  // namespace mgplan::cli
