#include "planner/search.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "plan/allowed_processors.hpp"
#include "planner/bounded_search.hpp"
#include "planner/run_parallel.hpp"
#include "planner/search_share.hpp"

namespace mgplan::planner {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

SearchResult search(const Workload& workload, const SearchSpace& space, const CostModelFactory& cost_model, const SearchOptions& options) {
    const auto begin = Clock::now();
    SearchResult result;
    result.limit_bytes = workload.memory_limit;
    const auto parts = prefixes(workload, space, result.counts);
    const auto wanted = static_cast<std::size_t>(options.threads > 0 ? options.threads : allowed_processors());
    const std::size_t threads = std::clamp<std::size_t>(wanted, 1, std::max<std::size_t>(1, parts.size()));
    std::vector<SearchShare> shares(threads, SearchShare(options));
    std::vector<LayoutCost> pricers;
    for (std::size_t t = 0; t < threads; ++t) pricers.push_back(cost_model(workload));
    std::optional<RankedLayout> compared;
    if (options.compared) {
        const LayoutCost& cost = pricers.front();
        compared = RankedLayout{*options.compared, cost.iteration_seconds(*options.compared).seconds,
                                cost.memory(*options.compared, std::numeric_limits<std::int64_t>::max()).bytes};
    }
    const auto evaluation = Clock::now();
    const RankedLayout* const against = compared ? &*compared : nullptr;
    if (options.objective == Objective::throughput && options.bounded && pricers.front().least_seconds) {
        search_bounded(workload, space, parts, pricers, options, against, shares.front());
    } else {
        run_parallel(
            parts.size(), shares.size(),
            [&](std::size_t part, std::size_t thread) {
                SearchShare& share = shares[thread];
                visit_layouts(workload, space, parts[part], share.counts, [&](const Layout& layout) {
                    share.price(layout, pricers[thread], workload.memory_limit, options, {.compared = against});
                });
            },
            options.progress);
    }
    result.evaluate_seconds = seconds_since(evaluation);

    SearchShare all(options);
    all.counts = std::move(result.counts);
    for (auto& share : shares) all.absorb(std::move(share));
    result.counts = std::move(all.counts);
    result.evaluated = all.evaluated;
    result.feasible = all.feasible;
    result.before_compared = all.before_compared;
    result.bounded = all.bounded;
    result.cut_at_least = all.cut_at_least;
    for (const TooLarge& found : all.too_large) result.too_large += found.count;
    result.too_large += all.too_large_uneven.count;
    result.too_large_by_term = std::move(all.too_large);
    result.too_large_uneven = std::move(all.too_large_uneven);
    result.best = all.best.take();
    if (options.objective == Objective::throughput && options.keep > 0 && result.best.size() == options.keep)
        result.slowest_kept = result.best.back().iteration_seconds;
    result.contenders = all.contenders.take();
    result.others_at_least = std::min(all.contenders.others(), all.cut_at_least);
    result.nearest = all.nearest.take();
    result.pareto = all.pareto.layouts();
    result.families = all.families.take();
    result.threads = static_cast<int>(threads);
    result.seconds = seconds_since(begin);
    return result;
}

}  // namespace mgplan::planner
