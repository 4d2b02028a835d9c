#include "planner/plan_reasons.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <ranges>
#include <utility>

#include "plan/cluster/nvlink_domains.hpp"
#include "plan/layout/layout_switches.hpp"
#include "planner/planned_layout.hpp"

namespace mgplan::planner {
namespace {

/// By enumerator.
constexpr std::array<std::string_view, 7> kWords{
    "fastest", "steadiest", "most-free-memory", "simplest", "no-pipeline", "experts-in-nvlink-domain", "like-nvidia-recipe"};
static_assert(static_cast<std::size_t>(PlanReason::like_nvidia_recipe) + 1 == kWords.size());

/// A simpler or steadier plan may be slower than the fastest by at most this share.
constexpr double kAlmostAsFast = 0.03;

/// Number of parallel axes of several ranks, and of features that are switched on.
int features_of(const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    const LayoutSwitches on = layout.switches ? *layout.switches : LayoutSwitches{};
    return (sizes.tp > 1) + (sizes.cp > 1) + (sizes.ep > 1) + (sizes.pp > 1) + (layout.vpp > 1) + (layout.recompute != Recompute::none) +
           !layout.cuda_graphs.empty() + on.sharding.has_value() + on.dispatcher.has_value() + on.overlap_tp + on.overlap_moe +
           on.bf16_gradients + on.bf16_moments + (layout.split && layout.split->kind() == SplitKind::layout_string);
}

bool keeps_experts_inside(const Layout& layout, const Workload& workload) {
    const std::int64_t domain = used_gpus_of_domain(workload.cluster, layout.sizes.world);
    return workload.model.moe && layout.sizes.ep > 1 && layout.sizes.ep * layout.sizes.etp <= domain;
}

}  // namespace

bool RecipeSizes::are_of(const ParallelSizes& sizes) const {
    return sizes.tp == tp && sizes.cp == cp && sizes.pp == pp && sizes.ep == ep && (ep == 1 || sizes.etp == etp);
}

std::string_view to_string(PlanReason reason) {
    return kWords[static_cast<std::size_t>(reason)];
}

void give_reasons(std::span<PlannedLayout> plans, const Workload& workload) {
    if (plans.empty()) return;
    const auto give = [&](PlanReason reason, auto plan) {
        if (plan != plans.end()) plan->why.push_back(reason);
    };
    const auto seconds = [](const PlannedLayout& plan) { return plan.prediction.time.iteration_seconds; };
    const auto adverse_seconds = [](const PlannedLayout& plan) { return plan.prediction.time.adverse_seconds; };
    const auto bytes = [](const PlannedLayout& plan) { return plan.prediction.memory.deciding_bytes(); };
    const auto features = [](const PlannedLayout& plan) { return features_of(plan.layout); };
    const auto much_slower = std::ranges::find_if(
        plans, [&](const PlannedLayout& plan) { return seconds(plan) > (1 + kAlmostAsFast) * seconds(plans.front()); });
    const std::ranges::subrange almost_as_fast(plans.begin(), much_slower);
    std::ranges::min_element(almost_as_fast, {}, adverse_seconds)->recommended = true;
    give(PlanReason::fastest, plans.begin());
    give(PlanReason::steadiest, std::ranges::min_element(plans, {}, adverse_seconds));
    give(PlanReason::most_free_memory, std::ranges::min_element(plans, {}, bytes));
    give(PlanReason::simplest, std::ranges::min_element(almost_as_fast, {}, features));
    give(PlanReason::no_pipeline, std::ranges::find_if(plans, [](const PlannedLayout& plan) { return plan.layout.sizes.pp == 1; }));
    give(PlanReason::experts_in_nvlink_domain,
         std::ranges::find_if(plans, [&](const PlannedLayout& plan) { return keeps_experts_inside(plan.layout, workload); }));
}

bool mark_recipe(std::span<PlannedLayout> plans, const RecipeSizes& recipe) {
    const auto like = std::ranges::find_if(plans, [&](const PlannedLayout& plan) { return recipe.are_of(plan.layout.sizes); });
    if (like != plans.end()) like->why.push_back(PlanReason::like_nvidia_recipe);
    return like != plans.end();
}

std::vector<std::size_t> shown_plans(std::span<const PlannedLayout> plans, std::size_t most) {
    constexpr std::size_t kMostShown = 5;
    std::vector<std::pair<std::size_t, std::size_t>> shown;  // place in the order of importance, index
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const PlannedLayout& plan = plans[i];
        if (plan.why.empty() && !plan.recommended) continue;
        const bool always = i == 0 || plan.recommended;
        shown.emplace_back(always ? 0 : static_cast<std::size_t>(plan.why.front()), i);
    }
    std::ranges::sort(shown);
    const auto always = static_cast<std::size_t>(std::ranges::count(shown, 0U, &std::pair<std::size_t, std::size_t>::first));
    shown.resize(std::min(shown.size(), std::max(always, std::min(most, kMostShown))));
    std::vector<std::size_t> indices;
    for (const auto& [place, index] : shown) indices.push_back(index);
    std::ranges::sort(indices);
    return indices;
}

}  // namespace mgplan::planner
