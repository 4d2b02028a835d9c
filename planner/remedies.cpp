#include <optional>

#include <fmt/format.h>

#include "plan/errors.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {
namespace {

/// Peak of the layout that `request` makes, or nothing where no rule-abiding layout comes out.
std::optional<std::int64_t> peak_of(const LayoutRequest& request, const Workload& workload, const LayoutCost& cost) {
    try {
        return cost.peak_bytes(make_layout(request, workload));
    } catch (const ConfigError&) {
        return std::nullopt;
    }
}

}  // namespace

std::vector<Remedy> remedies(const Workload& workload, const Layout& layout, const CostModelFactory& cost_model) {
    std::vector<Remedy> found;
    const LayoutCost cost = cost_model(workload);
    const LayoutRequest base = request_of(layout);
    const auto try_change = [&](const LayoutRequest& request, std::string change) {
        const auto peak = peak_of(request, workload, cost);
        if (!peak || *peak > workload.memory_limit) return false;
        found.push_back({std::move(change), *peak});
        return true;
    };

    if (layout.recompute != Recompute::full) {
        LayoutRequest request = base;
        request.recompute = Recompute::full;
        request.recompute_method = RecomputeMethod::uniform;
        request.recompute_num_layers = 1;
        try_change(request, "full recompute");
    }
    for (std::int64_t smaller = layout.micro_batch / 2; smaller >= 1; smaller /= 2) {
        LayoutRequest request = base;
        request.micro_batch = smaller;
        if (try_change(request, fmt::format("micro-batch {} instead of {}", smaller, layout.micro_batch))) break;
    }
    for (std::int64_t factor = 2; layout.sizes.pp * factor <= workload.world; factor *= 2) {
        LayoutRequest request = base;
        request.pp = layout.sizes.pp * factor;
        request.split.reset();
        request.group_size.reset();
        if (try_change(request, fmt::format("pp {} instead of {}", request.pp, layout.sizes.pp))) break;
    }
    // More GPUs shard the optimizer further or take more pipeline stages; the batch grows with them.
    for (std::int64_t factor = 2; factor <= 1024 && workload.world * factor <= (std::int64_t{1} << 24); factor *= 2) {
        Workload larger = workload;
        larger.world *= factor;
        larger.batch.global_batch *= factor;
        const LayoutCost larger_cost = cost_model(larger);
        bool fits = false;
        for (std::int64_t pipeline = 1; pipeline <= factor && !fits; pipeline *= 2) {
            LayoutRequest request = base;
            request.pp = layout.sizes.pp * pipeline;
            request.recompute = Recompute::full;
            request.recompute_method = RecomputeMethod::uniform;
            request.recompute_num_layers = 1;
            if (pipeline > 1) request.split.reset();
            request.group_size.reset();
            const auto peak = peak_of(request, larger, larger_cost);
            if (peak && *peak <= workload.memory_limit) {
                found.push_back(
                    {fmt::format("{} GPUs instead of {} (pp {}, full recompute)", larger.world, workload.world, request.pp), *peak});
                fits = true;
            }
        }
        if (fits) break;
    }
    return found;
}

}  // namespace mgplan::planner
