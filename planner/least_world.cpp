#include "planner/least_world.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"

namespace mgplan::planner {
namespace {

/// The space without overlaps and CUDA graphs that it leaves open. A layout without them needs no more memory than with them.
SearchSpace without_overlaps_and_graphs(SearchSpace space) {
    space.more_cuda_graphs.clear();
    std::erase_if(space.switches, [](const auto& one) { return one && (one->overlap_tp || one->overlap_moe); });
    return space;
}

/// The part of a space in which most of the smallest layouts are: one sequence per microbatch, everything recomputed.
SearchSpace smallest_layouts(SearchSpace space) {
    if (space.micro_batch.empty()) space.micro_batch = {1};
    if (std::ranges::find(space.recompute, Recompute::full) != space.recompute.end()) space.recompute = {Recompute::full};
    space.recompute_blocks = false;
    return space;
}

/// Returns `size`, its half and its double, as far as the axis searches them (all sizes, if none is listed).
std::vector<std::int64_t> near_sizes(const std::vector<std::int64_t>& searched, std::int64_t size) {
    std::vector<std::int64_t> near{size, 2 * size};
    if (size % 2 == 0) near.push_back(size / 2);
    std::erase_if(near, [&](std::int64_t one) { return !searched.empty() && std::ranges::find(searched, one) == searched.end(); });
    return near;
}

}  // namespace

std::vector<std::int64_t> worlds_of(const ClusterSpec& cluster, std::int64_t most) {
    const std::int64_t node = cluster.gpus_per_node;
    std::vector<std::int64_t> worlds;
    for (std::int64_t world = 1; world < node && world <= most; world *= 2) worlds.push_back(world);
    for (std::int64_t world = node; world <= most; world += node) worlds.push_back(world);
    return worlds;
}

std::optional<std::int64_t> least_world(const std::vector<std::int64_t>& worlds, const std::function<WorldFit(std::int64_t)>& judge) {
    const auto power_of = [](std::int64_t world) { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(world))); };
    std::vector<std::int64_t> judged;
    std::optional<std::int64_t> least;
    int legal_power = 0;  // of the last legal world
    for (const std::int64_t world : worlds) {
        if (power_of(world) == legal_power) continue;
        judged.push_back(world);
        const WorldFit fit = judge(world);
        if (fit != WorldFit::illegal) legal_power = power_of(world);
        if (fit != WorldFit::fits) continue;
        least = world;
        break;
    }
    // Without an answer, the worlds above the last one judged are left.
    const std::int64_t above = least || judged.empty() ? 0 : judged.back();
    for (const std::int64_t world : worlds) {
        if (least && world >= *least) break;
        if (world > above && std::ranges::find(judged, world) == judged.end() && judge(world) == WorldFit::fits) least = world;
    }
    return least;
}

std::int64_t least_state_bytes(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model) {
    Workload alone = workload;
    alone.world = alone.batch.global_batch = 1;
    LayoutRequest request;
    request.engine = space.engine;
    try {
        const std::int64_t bytes = cost_model(alone).least_bytes(make_layout(request, alone), space);
        return quantised(alone.training.precision) ? bytes / 2 : bytes;
    } catch (const ConfigError&) {
        return 0;
    }
}

std::optional<PlannedLayout> fitting_layout(const Workload& workload, const SearchSpace& space, const RankingOptions& options) {
    const std::int64_t limit = workload.memory_limit - options.headroom_bytes;
    if (least_state_bytes(workload, space, options.cost_model) / workload.world > limit) return {};
    RankingOptions by_time = options;
    by_time.objective = Objective::throughput;
    const SearchSpace lean = without_overlaps_and_graphs(space), smallest = smallest_layouts(lean);
    try {
        if (auto found = first_layout(workload, smallest, by_time); found.plan) return found.plan;
    } catch (const ConfigError&) {  // none of this part is legal
    }
    const FirstLayout found = first_layout(workload, lean, by_time);
    if (found.plan || found.dropped == 0) return found.plan;
    // The fastest do not fit when replayed, and a search keeps no others: the smallest may.
    RankingOptions by_memory = options;
    by_memory.objective = Objective::memory;
    try {
        return first_layout(workload, smallest, by_memory).plan;
    } catch (const ConfigError&) {
        return {};
    }
}

std::optional<PlannedLayout> fast_layout(const Workload& workload, const SearchSpace& space, const RankingOptions& options) {
    RankingOptions few = options;
    few.keeps_few = true;
    SearchSpace near = space;
    if (workload.model.moe) {
        const auto plain = first_layout(workload, without_overlaps_and_graphs(space), few).plan;
        if (!plain) return fitting_layout(workload, space, options);
        const ParallelSizes& found = plain->layout.sizes;
        for (const auto& [axis, size] :
             {std::pair{&near.tp, found.tp}, {&near.cp, found.cp}, {&near.ep, found.ep}, {&near.etp, found.etp}, {&near.pp, found.pp}})
            *axis = near_sizes(*axis, size);
    }
    auto first = first_layout(workload, near, few).plan;
    return first ? first : fitting_layout(workload, space, options);
}

}  // namespace mgplan::planner
