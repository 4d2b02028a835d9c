#include "planner/plan_reasons.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>

#include "plan/cluster/nvlink_domains.hpp"
#include "plan/layout/layout_switches.hpp"

namespace mgplan::planner {
namespace {

/// By enumerator.
constexpr std::array<std::string_view, 5> kWords{"fastest", "most-free-memory", "simplest", "no-pipeline", "experts-in-nvlink-domain"};
static_assert(static_cast<std::size_t>(PlanReason::experts_in_nvlink_domain) + 1 == kWords.size());

/// A simpler plan may be slower by at most this share.
constexpr double kSimplerAtMost = 0.03;

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

std::string_view to_string(PlanReason reason) {
    return kWords[static_cast<std::size_t>(reason)];
}

std::vector<std::vector<PlanReason>> reasons_of(std::span<const RankedLayout> plans, const Workload& workload) {
    std::vector<std::vector<PlanReason>> reasons(plans.size());
    if (plans.empty()) return reasons;
    const auto give = [&](PlanReason reason, auto plan) {
        if (plan != plans.end()) reasons[static_cast<std::size_t>(plan - plans.begin())].push_back(reason);
    };
    give(PlanReason::fastest, plans.begin());
    give(PlanReason::most_free_memory,
         std::min_element(plans.begin(), plans.end(), [](const auto& a, const auto& b) { return a.peak_bytes < b.peak_bytes; }));
    const auto much_slower = std::find_if(plans.begin(), plans.end(), [&](const RankedLayout& plan) {
        return plan.iteration_seconds > (1 + kSimplerAtMost) * plans.front().iteration_seconds;
    });
    give(PlanReason::simplest, std::min_element(plans.begin(), much_slower, [](const auto& a, const auto& b) {
             return features_of(a.layout) < features_of(b.layout);
         }));
    give(PlanReason::no_pipeline, std::find_if(plans.begin(), plans.end(), [](const auto& plan) { return plan.layout.sizes.pp == 1; }));
    give(PlanReason::experts_in_nvlink_domain,
         std::find_if(plans.begin(), plans.end(), [&](const auto& plan) { return keeps_experts_inside(plan.layout, workload); }));
    return reasons;
}

std::vector<std::size_t> shown_plans(std::span<const RankedLayout> plans, const Workload& workload) {
    const auto reasons = reasons_of(plans, workload);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        if (!reasons[i].empty() || plans[i].peak_bytes < least) shown.push_back(i);
        least = std::min(least, plans[i].peak_bytes);
    }
    return shown;
}

}  // namespace mgplan::planner
