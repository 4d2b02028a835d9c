#include "planner/search_share.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace mgplan::planner {
namespace {

/// Keeps the layout if it is nearer to the limit. Most layouts are excluded by their bytes alone.
void keep_nearer(TooLarge& alike, const Layout& layout, std::int64_t peak) {
    if (alike.nearest && peak > alike.nearest->peak_bytes) return;
    RankedLayout candidate{layout, 0, peak};
    if (!alike.nearest || SmallerPeak{}(candidate, *alike.nearest)) alike.nearest = std::move(candidate);
}

}  // namespace

void SearchShare::absorb(SearchShare&& other) {
    contenders.absorb(std::move(other.contenders));
    for (const auto& ranked : other.pareto.layouts()) pareto.offer(ranked);
    families.absorb(std::move(other.families));
    for (const auto& ranked : other.best.take()) best.offer(ranked.layout, ranked.iteration_seconds, ranked.peak_bytes);
    for (const auto& ranked : other.nearest.take()) nearest.offer(ranked.layout, ranked.peak_bytes);
    counts.merge(other.counts);
    evaluated += other.evaluated;
    feasible += other.feasible;
    before_compared += other.before_compared;
    bounded += other.bounded;
    cut_at_least = std::min(cut_at_least, other.cut_at_least);
    const auto add = [](TooLarge& all, const TooLarge& found) {
        all.count += found.count;
        if (found.nearest) keep_nearer(all, found.nearest->layout, found.nearest->peak_bytes);
    };
    for (std::size_t term = 0; term < kFillingTerms; ++term) add(too_large[term], other.too_large[term]);
    add(too_large_uneven, other.too_large_uneven);
}

bool SearchShare::cut(std::int64_t layouts, double at_least, double slowest) {
    if (at_least <= to_beat(slowest)) return false;
    bounded += layouts;
    cut_at_least = std::min(cut_at_least, at_least);
    return true;
}

bool SearchShare::enter(const Layout& first, std::int64_t layouts, const LayoutCost& cost, UnsplitBounds& unsplit, const SearchSpace& space,
                        std::int64_t most, double slowest) {
    const double enough = to_beat(slowest);
    if (std::isfinite(enough) && cut(layouts, unsplit.of(first, enough), slowest)) return false;
    if (cost.least_bytes(first, space) > most) {
        bounded += layouts;
        return false;
    }
    return !std::isfinite(enough) || !cut(layouts, cost.least_seconds(first, space, enough), slowest);
}

void SearchShare::price_bounded(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options,
                                double slowest, const RankedLayout* compared) {
    const TimeEstimate time = cost.iteration_seconds(layout);
    if (cut(1, std::min(time.seconds, time.at_least), slowest)) return;
    price(layout, cost, limit, options, {.time = &time, .compared = compared});
}

void SearchShare::price_miss(const Layout& layout, const LayoutCost& cost, std::int64_t limit) {
    const std::int64_t most = bytes_of_interest(limit, true);
    const MemoryNeed need = cost.memory(layout, most);
    const bool by_host = need.bytes <= limit && need.host_missing > 0;
    const std::int64_t peak = by_host ? limit + need.host_missing : need.bytes;
    if (peak > most) {
        ++bounded;
        return;
    }
    const auto even_fits = [&] { return need.even <= limit; };
    const FillingTerm term = by_host ? FillingTerm::host : even_fits() ? FillingTerm::other : cost.memory(layout, limit).largest;
    TooLarge& alike = !by_host && even_fits() ? too_large_uneven : too_large[static_cast<std::size_t>(term)];
    ++alike.count;
    nearest.offer(layout, peak);
    keep_nearer(alike, layout, peak);
}

void SearchShare::hold_against(const RankedLayout& compared, const Layout& layout, double seconds, std::int64_t peak, Objective objective) {
    const BeforeByObjective before{objective};
    RankedLayout candidate{{}, seconds, peak};
    if (before.surely_behind(candidate, compared)) return;
    if (!before.surely_behind(compared, candidate)) {
        candidate.layout = layout;
        if (!before(candidate, compared)) return;
    }
    ++before_compared;
}

void SearchShare::price(const Layout& layout, const LayoutCost& cost, std::int64_t limit, const SearchOptions& options,
                        const Beside& beside) {
    const MemoryNeed need = cost.memory(layout, limit);
    const bool by_host = need.bytes <= limit && need.host_missing > 0;
    const bool fits = need.bytes <= limit && !by_host;
    if (!fits) {
        const bool uneven = !by_host && need.even <= limit;
        TooLarge& alike = uneven ? too_large_uneven : too_large[static_cast<std::size_t>(by_host ? FillingTerm::host : need.largest)];
        ++alike.count;
        // If the even peak exceeds the limit, it is not exact. Only the lists need the exact value, so it is computed only for a layout
        // that may still enter one. The layout's category does not change: it must not depend on what a thread has evaluated before.
        const std::int64_t farthest =
            std::max(nearest.largest_peak(), alike.nearest ? alike.nearest->peak_bytes : std::numeric_limits<std::int64_t>::max());
        const std::int64_t known = by_host ? limit + need.host_missing : need.bytes;
        if (known <= farthest) {
            const std::int64_t peak = uneven || by_host ? known : cost.memory(layout, farthest).bytes;
            nearest.offer(layout, peak);
            keep_nearer(alike, layout, peak);
        }
        if (options.prune) return;
    }
    ++evaluated;
    const TimeEstimate time = beside.time != nullptr ? *beside.time : cost.iteration_seconds(layout);
    if (!fits) return;
    ++feasible;
    best.offer(layout, time.seconds, need.bytes);
    contenders.offer(layout, time, need.bytes);
    if (options.pareto) pareto.offer(layout, time.seconds, need.bytes);
    if (options.families) families.offer(layout, time.seconds, need.bytes);
    if (beside.compared != nullptr) hold_against(*beside.compared, layout, time.seconds, need.bytes, options.objective);
}

}  // namespace mgplan::planner
