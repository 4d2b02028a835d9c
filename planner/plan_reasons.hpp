#pragma once
// Reasons why a table shows a plan besides its time, and the plan that is recommended.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/layout/world_division.hpp"
#include "plan/workload.hpp"

namespace mgplan::planner {

struct PlannedLayout;

/// Sizes of a layout that a vendor publishes for a job.
struct RecipeSizes {
    std::int64_t tp = 1, cp = 1, ep = 1, etp = 1, pp = 1;
    [[nodiscard]] bool are_of(const ParallelSizes& sizes) const;
};

/// steadiest: the shortest iteration in adverse conditions. simplest: the fewest parallel axes and features among plans at most 3 % slower
/// than the fastest. experts_in_nvlink_domain: expert groups of several ranks that stay inside an NVLink domain.
/// like_nvidia_recipe: the sizes of the recipe that NVIDIA ships for the job.
enum class PlanReason : std::uint8_t {
    fastest,
    steadiest,
    most_free_memory,
    simplest,
    no_pipeline,
    experts_in_nvlink_domain,
    like_nvidia_recipe
};

/// "fastest", "steadiest", "most-free-memory", "simplest", "no-pipeline", "experts-in-nvlink-domain", "like-nvidia-recipe".
[[nodiscard]] std::string_view to_string(PlanReason reason);

/// Sets PlannedLayout::why and recommended. `plans`: fastest first. Each reason belongs to the first plan for which it is true; a reason
/// that is true for none belongs to none. Recommended is the steadiest of the plans at most 3 % slower than the fastest.
void give_reasons(std::span<PlannedLayout> plans, const Workload& workload);

/// Gives like_nvidia_recipe to the first plan with these sizes; false if there is none.
bool mark_recipe(std::span<PlannedLayout> plans, const RecipeSizes& recipe);

/// Indices of the plans that a table shows: the fastest and the recommended, then those with a reason, in the order of PlanReason, at most
/// `most`, and never more than five. A plan that is no faster, no steadier and no smaller than another is shown only if no other plan has
/// its reason.
[[nodiscard]] std::vector<std::size_t> shown_plans(std::span<const PlannedLayout> plans, std::size_t most);

}  // namespace mgplan::planner
