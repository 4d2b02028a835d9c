#include "planner/split_schedules.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "plan/layout/layout_schedule.hpp"
#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "planner/family_set.hpp"
#include "planner/kept_layouts.hpp"
#include "planner/scaling.hpp"

namespace mgplan::planner {
namespace {

/// The layout with the schedule; nothing if the schedule cannot run there, with the first reason in `why_not`.
std::optional<Layout> with_schedule(const Layout& layout, SplitSchedule kind, const Workload& workload, std::string& why_not) {
    LayoutRequest request = request_of(layout);
    request.schedule = kind;
    request.group_size.reset();
    if (request.vpp != chunks_of(kind)) {
        request.vpp = chunks_of(kind);
        request.split.reset();
    } else if (layout.split->kind() == SplitKind::first_last || is_v_shaped(kind)) {
        request.split.reset();
    }
    try {
        return make_layout(request, workload);
    } catch (const ConfigError& error) {
        if (why_not.empty()) why_not = error.problems().front();
        return std::nullopt;
    }
}

/// The nearest misses, in the number that a search keeps, smallest peak first.
std::vector<RankedLayout> nearest_of(const std::vector<RankedLayout>& missed) {
    NearestMisses nearest(SearchOptions{}.keep_nearest);
    for (const RankedLayout& miss : missed) nearest.offer(miss.layout, miss.peak_bytes);
    return nearest.take();
}

/// Adds layouts to the families and the Pareto set.
void collect(const std::vector<RankedLayout>& added, SearchResult& found) {
    FamilySet families(std::move(found.families));
    ParetoSet pareto;
    for (const RankedLayout& each : found.pareto) pareto.offer(each);
    for (const RankedLayout& each : added) {
        families.offer(each.layout, each.iteration_seconds, each.peak_bytes);
        pareto.offer(each);
    }
    found.families = families.take();
    found.pareto = pareto.layouts();
}

}  // namespace

std::vector<ScheduleGain> add_split_schedules(SearchResult& found, simulator::CostModel& model, const Workload& workload,
                                              std::span<const SplitSchedule> kinds, Objective objective, bool alone) {
    std::vector<RankedLayout>& best = found.best;
    std::vector<const Layout*> bases;
    for (std::size_t i = 0; i < found.replayed; ++i) bases.push_back(&best[i].layout);
    for (const RankedLayout& miss : found.nearest) bases.push_back(&miss.layout);
    std::optional<double> before;
    for (std::size_t i = 0; i < found.replayed; ++i)
        before = std::min(before.value_or(best[i].iteration_seconds), best[i].iteration_seconds);
    std::vector<ScheduleGain> gains;
    std::vector<RankedLayout> added, missed;
    for (const SplitSchedule kind : kinds) {
        ScheduleGain gain;
        gain.kind = kind;
        gain.seconds_before = before;
        std::vector<Layout> tried;
        for (const Layout* base : bases) {
            if (tried.size() == kMostDivided) break;
            if (base->sizes.pp == 1) continue;
            auto layout = with_schedule(*base, kind, workload, gain.why_not);
            // Layouts that differ only in vpp become equal.
            const auto equal = [&](const Layout& other) { return other == *layout; };
            if (!layout || std::any_of(tried.begin(), tried.end(), equal)) continue;
            tried.push_back(std::move(*layout));
            const Layout& one = tried.back();
            try {
                const simulator::MemoryPrediction memory = model.replayed_memory(one);
                if (memory.deciding_bytes() > workload.memory_limit || !memory.host_fits()) {  // including headroom
                    missed.push_back({one, 0, memory.deciding_bytes()});
                    continue;
                }
                const double seconds = model.exact_seconds(one);
                gain.seconds = std::min(gain.seconds.value_or(seconds), seconds);
                ++gain.fit;
                added.push_back({one, seconds, memory.deciding_bytes()});
            } catch (const ConfigError& error) {
                if (gain.why_not.empty()) gain.why_not = error.problems().front();
            }
        }
        gain.tried = tried.size();
        if (gain.fit > 0)
            gain.why_not.clear();
        else if (tried.empty() && gain.why_not.empty())
            gain.why_not = "no layout with pp > 1 fits, or misses by little";
        gains.push_back(std::move(gain));
    }
    std::int64_t tried = 0;
    for (const ScheduleGain& gain : gains) tried += static_cast<std::int64_t>(gain.tried);
    found.counts.legal += tried;
    found.feasible += std::ssize(added);
    if (alone) {
        found.feasible = std::ssize(added);
        best.clear();
        found.replayed = 0;
        if (added.empty()) found.nearest = nearest_of(missed);
        found.families.clear();
        found.pareto.clear();
    }
    collect(added, found);
    const auto behind = best.begin() + static_cast<std::ptrdiff_t>(found.replayed);
    const auto end = best.insert(behind, added.begin(), added.end()) + std::ssize(added);
    std::stable_sort(best.begin(), end, [objective](const auto& a, const auto& b) { return ranks_before(a, b, objective); });
    found.replayed += added.size();
    if (!added.empty()) found.fastest_is_proven.reset();
    return gains;
}

}  // namespace mgplan::planner
