#include "planner/ranking.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "plan/errors.hpp"
#include "planner/balanced_layout.hpp"
#include "planner/exact_ranking.hpp"
#include "planner/plan_families.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {
namespace {

/// Layouts whose stages are balanced.
constexpr std::size_t kMostBalanced = 10;

/// Puts the balanced ones of the best layouts with a pipeline among those that were replayed, where they are faster.
BalancingGain add_balanced(SearchResult& found, simulator::CostModel& model, const Workload& workload, Objective objective) {
    BalancingGain report;
    std::vector<RankedLayout>& best = found.best;
    std::vector<RankedLayout> added;
    for (std::size_t i = 0; i < found.replayed && report.tried < kMostBalanced; ++i) {
        if (best[i].layout.sizes.pp == 1) continue;
        ++report.tried;
        const BalancedLayout balanced = balance_layout(model, workload, best[i].layout);
        if (!balanced.why_not.empty()) continue;
        ++report.faster;
        report.seconds_before[balanced.layout.split.get()] = balanced.seconds_before;
        added.push_back({balanced.layout, balanced.seconds, model.peaks(balanced.layout).deciding});
    }
    const auto behind = best.begin() + static_cast<std::ptrdiff_t>(found.replayed);
    const auto end = best.insert(behind, added.begin(), added.end()) + std::ssize(added);
    std::stable_sort(best.begin(), end, [objective](const auto& a, const auto& b) { return ranks_before(a, b, objective); });
    return report;
}

/// No candidate satisfies the rules: says which ones stand in the way.
[[noreturn]] void refuse(const Workload& workload, const SearchSpace& space, const SearchResult& found) {
    auto messages = why_nothing_is_legal(workload, space, found.counts);
    if (messages.size() > 1) messages.insert(messages.begin(), "no candidate is a legal layout; what stands in the way:");
    throw ConfigError(std::move(messages));
}

/// `best`: of the search before those were dropped that do not fit when replayed.
ComparedRank rank_of(const Layout& layout, const std::vector<RankedLayout>& best, const SearchResult& found, simulator::CostModel& model) {
    if (!model.replayed_memory(layout).fits()) return {};
    const auto is_it = [&](const RankedLayout& each) { return each.layout == layout; };
    if (const auto kept = std::find_if(found.best.begin(), found.best.end(), is_it); kept != found.best.end()) {
        const auto place = static_cast<std::size_t>(kept - found.best.begin());
        return {place + 1, place < found.replayed};
    }
    // All that were dropped stood before those that nobody looked at.
    const auto dropped = static_cast<std::size_t>(found.too_large_replayed.count);
    if (const auto ranked = std::find_if(best.begin(), best.end(), is_it); ranked != best.end()) {
        const auto place = static_cast<std::size_t>(ranked - best.begin());
        return {std::max(place - std::min(place, dropped), found.best.size()) + 1, place < found.replayed};
    }
    const auto before = static_cast<std::size_t>(found.before_compared);
    return {before - std::min(before, dropped) + 1, false};
}

/// Bounds and times are sums in different orders.
constexpr double kJustAbove = 1 + 1e-9;

/// Without the plans. `never_below`: SearchOptions::never_below.
Ranking rank_within(const Workload& workload, const SearchSpace& space, const RankingOptions& options, double never_below = 0) {
    const std::size_t wanted = std::max(options.plans, options.ranks);
    SearchOptions asked;
    asked.keep = std::max(wanted, kRankedExactly);
    asked.keep_contenders = kContenders;
    asked.objective = options.objective;
    asked.bounded = options.bounded;
    asked.never_below = never_below;
    asked.threads = options.threads;
    asked.pareto = options.pareto;
    asked.families = options.families;
    asked.compared = options.compared;
    asked.progress = options.progress;

    Ranking ranking;
    ranking.search = search(workload, space, options.cost_model, asked);
    if (ranking.search.counts.legal == 0) refuse(workload, space, ranking.search);
    simulator::CostModel model(workload);
    rank_exactly(ranking.search, model, options.objective, wanted);
    if (options.balance_stages) ranking.balanced = add_balanced(ranking.search, model, workload, options.objective);
    const std::vector<RankedLayout> best = options.compared ? ranking.search.best : std::vector<RankedLayout>{};
    keep_fitting_when_replayed(ranking.search, model, [&](std::span<const RankedLayout> kept) {
        const std::size_t families = std::max(options.one_per_family ? options.plans : 0, options.families ? kRankedFamilies : 0);
        if (kept.size() < (options.one_per_family ? options.ranks : wanted)) return false;
        return families == 0 || plan_families(kept, families).size() == families;
    });
    const std::span<const RankedLayout> replayed(ranking.search.best.data(), std::min(ranking.search.replayed, ranking.search.best.size()));
    double slowest_shown = 0;
    for (const RankedLayout& each : replayed.first(std::min(replayed.size(), wanted)))
        slowest_shown = std::max(slowest_shown, each.iteration_seconds);
    if (ranking.search.cut_at_least < slowest_shown) {
        // Event by event the best take longer than what was cut off does at least.
        return rank_within(workload, space, options, slowest_shown * kJustAbove);
    }
    for (const RankedLayout& each : replayed)
        ranking.search.fastest_seconds = std::min(ranking.search.fastest_seconds.value_or(each.iteration_seconds), each.iteration_seconds);
    if (options.compared) ranking.compared = rank_of(*options.compared, best, ranking.search, model);
    return ranking;
}

}  // namespace

Ranking rank_layouts(const Workload& workload, const SearchSpace& space, const RankingOptions& options) {
    Workload narrowed = workload;
    narrowed.memory_limit -= options.headroom_bytes;
    Ranking ranking = rank_within(narrowed, space, options);
    if (ranking.search.best.empty() && options.headroom_bytes > 0) {
        ranking = rank_within(workload, space, options);
        ranking.search.headroom_missed = !ranking.search.best.empty();
    }
    if (options.predictions) ranking.plans = plans_of(workload, ranking.search, options.plans, options.one_per_family);
    return ranking;
}

std::vector<PlannedLayout> plans_of(const Workload& workload, const SearchResult& search, std::size_t most, bool one_per_family) {
    simulator::CostModel model(workload);
    std::vector<PlannedLayout> plans;
    const auto add = [&](std::size_t index) -> PlannedLayout& {
        const Layout& layout = search.best[index].layout;
        return plans.emplace_back(PlannedLayout{layout, model.predict_exactly(layout), index + 1, {}});
    };
    if (!one_per_family) {
        for (std::size_t i = 0; i < std::min(most, search.best.size()); ++i) add(i);
        return plans;
    }
    for (const auto& [fastest, others] : plan_families(search.best, most)) {
        PlannedLayout& plan = add(fastest);
        for (const std::size_t index : others) plan.others.push_back(index + 1);
    }
    return plans;
}

}  // namespace mgplan::planner
