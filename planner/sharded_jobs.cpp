#include "planner/sharded_jobs.hpp"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "plan/layout/layout_switches.hpp"
#include "planner/constraints.hpp"
#include "planner/family_set.hpp"
#include "planner/kept_layouts.hpp"
#include "planner/scaling.hpp"

namespace mgplan::planner {
namespace {

std::optional<DataShardingChoice> sharding_of(const Layout& layout) {
    return layout.switches ? layout.switches->sharding : std::nullopt;
}

Layout with_sharding(Layout layout, std::optional<DataShardingChoice> sharding) {
    LayoutSwitches switches = layout.switches ? *layout.switches : LayoutSwitches{};
    if (switches.sharding == sharding) return layout;
    switches.sharding = sharding;
    layout.switches = switches == LayoutSwitches{} ? nullptr : std::make_shared<const LayoutSwitches>(switches);
    return layout;
}

ShardedJob job_with(const Workload& workload, std::optional<DataShardingChoice> sharding) {
    ShardedJob job{sharding, workload};
    if (sharding) apply_switches({.sharding = sharding}, job.workload.model, job.workload.training);
    return job;
}

/// True for rules that depend on tp, cp and pp alone.
bool is_about_sizes(std::string_view name) {
    const auto rule = std::find_if(rules().begin(), rules().end(), [name](const Rule& one) { return one.name == name; });
    return rule != rules().end() && rule->level <= Level::pipeline;
}

void merge_too_large(TooLarge& all, TooLarge&& found, const ShardedJob& job) {
    all.count += found.count;
    if (!found.nearest) return;
    found.nearest->layout = job.merged(std::move(found.nearest->layout));
    if (!all.nearest || SmallerPeak{}(*found.nearest, *all.nearest)) all.nearest = std::move(found.nearest);
}

}  // namespace

bool ShardedJob::has(const Layout& layout) const {
    return sharding_of(layout) == sharding;
}

Layout ShardedJob::own(Layout layout) const {
    return sharding ? with_sharding(std::move(layout), std::nullopt) : layout;
}

Layout ShardedJob::merged(Layout layout) const {
    return sharding ? with_sharding(std::move(layout), sharding) : layout;
}

std::vector<ShardedJob> sharded_jobs(const Workload& workload, const SearchSpace& space) {
    std::vector<ShardedJob> jobs{job_with(workload, std::nullopt)};
    for (const DataShardingChoice& sharding : space.shardings) {
        const bool known = data_sharding_choice(workload.training) == sharding ||
                           std::any_of(jobs.begin(), jobs.end(), [&](const ShardedJob& job) { return job.sharding == sharding; });
        if (!known) jobs.push_back(job_with(workload, sharding));
    }
    return jobs;
}

ShardedJob job_of(const Workload& workload, const Layout& layout) {
    return job_with(workload, sharding_of(layout));
}

void merge_results(SearchResult& all, SearchResult&& found, const ShardedJob& job) {
    ParetoSet pareto;
    for (RankedLayout& member : found.pareto) member.layout = job.merged(std::move(member.layout));
    for (const auto* members : {&all.pareto, &found.pareto}) {
        for (const RankedLayout& member : *members) pareto.offer(member);
    }
    all.pareto = pareto.layouts();
    for (FamilyPoint& family : found.families) family.fastest.layout = job.merged(std::move(family.fastest.layout));
    FamilySet families(std::move(all.families));
    families.absorb(FamilySet(std::move(found.families)));
    all.families = families.take();
    NearestMisses nearest(std::max(all.nearest.size(), found.nearest.size()));
    for (const RankedLayout& miss : all.nearest) nearest.offer(miss.layout, miss.peak_bytes);
    for (const RankedLayout& miss : found.nearest) nearest.offer(job.merged(miss.layout), miss.peak_bytes);
    all.nearest = nearest.take();
    // Rules on sizes reject the same candidates in every job.
    if (job.sharding) std::erase_if(found.counts.rejected, [](const auto& one) { return is_about_sizes(one.first); });
    all.counts.merge(found.counts);
    all.evaluated += found.evaluated;
    all.feasible += found.feasible;
    all.bounded += found.bounded;
    all.cut_at_least = std::min(all.cut_at_least, found.cut_at_least);
    all.others_at_least = std::min(all.others_at_least, found.others_at_least);
    all.too_large += found.too_large;
    for (std::size_t term = 0; term < kFillingTerms; ++term)
        merge_too_large(all.too_large_by_term[term], std::move(found.too_large_by_term[term]), job);
    merge_too_large(all.too_large_uneven, std::move(found.too_large_uneven), job);
    merge_too_large(all.too_large_replayed, std::move(found.too_large_replayed), job);
    all.replayed += found.replayed;
    all.limit_bytes = found.limit_bytes;
    all.seconds += found.seconds;
    all.evaluate_seconds += found.evaluate_seconds;
    all.threads = std::max(all.threads, found.threads);
}

}  // namespace mgplan::planner
