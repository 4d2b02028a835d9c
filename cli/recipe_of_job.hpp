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

/// Returns the pre-training recipe for the job's preset, GPU, number of GPUs and precision, with sequences at most twice as long or short.
/// Of several it takes the one with the nearest batch, and variants for development last. Nothing if the model is no preset, or if no
/// such recipe is shipped.
[[nodiscard]] std::optional<RecipeOfJob> recipe_of(const Workload& workload);

}  // namespace mgplan::cli
