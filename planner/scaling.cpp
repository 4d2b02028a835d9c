#include "planner/scaling.hpp"

#include <algorithm>
#include <cmath>

#include "plan/text/errors.hpp"
#include "planner/search.hpp"

namespace mgplan::planner {

std::optional<RunCost> run_cost(const TrainingGoal& goal, const BatchSpec& batch, std::int64_t world, double iteration_seconds) {
    if (!goal.tokens) return std::nullopt;
    MGPLAN_ASSERT(*goal.tokens > 0 && iteration_seconds > 0, "a run has tokens and takes time");
    constexpr double kSecondsPerHour = 3600, kHoursPerDay = 24;
    RunCost run;
    run.steps = std::ceil(*goal.tokens / (static_cast<double>(batch.global_batch) * static_cast<double>(batch.sequence)));
    const double hours = run.steps * iteration_seconds / kSecondsPerHour;
    run.days = hours / kHoursPerDay;
    run.gpu_hours = hours * static_cast<double>(world);
    if (goal.gpu_hour_price) run.cost = run.gpu_hours * *goal.gpu_hour_price;
    return run;
}

double tokens_per_second(const BatchSpec& batch, double iteration_seconds) {
    return static_cast<double>(batch.global_batch) * static_cast<double>(batch.sequence) / iteration_seconds;
}

double scaling_efficiency(double tokens_per_second, std::int64_t world, double base_tokens_per_second, std::int64_t base_world) {
    return tokens_per_second / static_cast<double>(world) / (base_tokens_per_second / static_cast<double>(base_world));
}

void ParetoSet::offer(const RankedLayout& candidate) {
    offer(candidate.layout, candidate.iteration_seconds, candidate.peak_bytes);
}

void ParetoSet::offer(const Layout& layout, double iteration_seconds, std::int64_t peak_bytes) {
    // Seconds rise and bytes fall along the list. Only the last layout that is no slower can exclude the candidate.
    const auto behind = std::upper_bound(layouts_.begin(), layouts_.end(), iteration_seconds,
                                         [](double seconds, const RankedLayout& other) { return seconds < other.iteration_seconds; });
    if (behind != layouts_.begin()) {
        const RankedLayout& before = *(behind - 1);
        if (before.peak_bytes < peak_bytes || (before.peak_bytes == peak_bytes && before.iteration_seconds < iteration_seconds)) return;
    }
    RankedLayout candidate{layout, iteration_seconds, peak_bytes};
    if (behind != layouts_.begin()) {
        const RankedLayout& before = *(behind - 1);
        const bool equal = before.peak_bytes == peak_bytes && before.iteration_seconds == iteration_seconds;
        if (equal && !ranks_before(candidate, before, Objective::throughput)) return;
    }
    // The candidate excludes layouts that are no faster and need no less.
    auto first = behind;
    while (first != layouts_.begin() && (first - 1)->iteration_seconds == iteration_seconds && (first - 1)->peak_bytes >= peak_bytes)
        --first;
    auto last = behind;
    while (last != layouts_.end() && last->peak_bytes >= peak_bytes) ++last;
    layouts_.insert(layouts_.erase(first, last), std::move(candidate));
}

}  // namespace mgplan::planner
