#include "planner/exact_ranking.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace mgplan::planner {
namespace {

/// Simulates contenders until none is left that could be faster than the fastest; false if the limit on passes is reached before.
class Proof {
public:
    Proof(SearchResult& found, std::size_t replayed, std::vector<double> estimated, simulator::CostModel& model)
        : found_(found), replayed_(replayed), estimated_(std::move(estimated)), model_(model) {
        for (std::size_t i = 0; i < replayed_; ++i) fastest_ = std::min(fastest_, found_.best[i].iteration_seconds);
    }

    bool run() {
        std::int64_t passes = 0;
        for (const Contender& each : found_.contenders) {
            if (each.at_least >= fastest_) return true;
            if (is_replayed(each)) continue;
            passes += simulator::CostModel::passes(each.layout);
            if (passes > kPassesProved) return false;
            added_.push_back({each.layout, model_.exact_seconds(each.layout), each.peak_bytes});
            fastest_ = std::min(fastest_, added_.back().iteration_seconds);
        }
        return found_.others_at_least >= fastest_;
    }

    /// Merges the contenders simulated for the proof into the best list.
    std::size_t merge() {
        auto& best = found_.best;
        const auto first_behind = best.begin() + static_cast<std::ptrdiff_t>(replayed_);
        best.erase(std::remove_if(first_behind, best.end(),
                                  [this](const RankedLayout& behind) {
                                      return std::any_of(added_.begin(), added_.end(),
                                                         [&](const auto& each) { return each.layout == behind.layout; });
                                  }),
                   best.end());
        best.insert(best.begin() + static_cast<std::ptrdiff_t>(replayed_), added_.begin(), added_.end());
        return replayed_ + added_.size();
    }

private:
    [[nodiscard]] bool is_replayed(const Contender& contender) const {
        for (std::size_t i = 0; i < replayed_; ++i) {
            if (estimated_[i] == contender.iteration_seconds && found_.best[i].layout == contender.layout) return true;
        }
        return false;
    }

    SearchResult& found_;
    std::size_t replayed_;
    std::vector<double> estimated_;  ///< by index in best: the search's estimate
    simulator::CostModel& model_;
    double fastest_ = std::numeric_limits<double>::infinity();
    std::vector<RankedLayout> added_;
};

/// Number of the best layouts that rank_exactly() simulates.
std::size_t count_ranked_exactly(const std::vector<RankedLayout>& best, std::size_t most) {
    std::size_t count = 0;
    std::int64_t passes = 0;
    for (; count < std::min(best.size(), kRankedExactly); ++count) {
        passes += simulator::CostModel::passes(best[count].layout);
        if (count >= kRankedExactlyAlways && passes > kPassesRankedExactly) break;
    }
    while (count > 0 && count < best.size() && certain_ranks(count) < most) count *= 2;
    return std::min(count, best.size());
}

}  // namespace

void rank_exactly(SearchResult& found, simulator::CostModel& model, Objective objective, std::size_t most) {
    auto& best = found.best;
    const std::size_t count = count_ranked_exactly(best, most);
    std::size_t replayed = 0;
    std::vector<double> estimated;
    for (; replayed < count; ++replayed) {
        RankedLayout& ranked = best[replayed];
        estimated.push_back(ranked.iteration_seconds);
        ranked.iteration_seconds = model.exact_seconds(ranked.layout);
    }
    if (objective == Objective::throughput) {
        Proof proof(found, replayed, std::move(estimated), model);
        found.fastest_is_proven = proof.run();
        replayed = proof.merge();
    }
    std::stable_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(replayed),
                     [objective](const auto& a, const auto& b) { return ranks_before(a, b, objective); });
    found.replayed = replayed;
}

bool fits_when_replayed(const SearchResult& found, const RankedLayout& ranked, ReplayedMemories& memories) {
    if (!memories.host_fits(ranked.layout)) return false;
    // The memory of mgplan's own engine is exact without a replay.
    if (ranked.layout.engine != Engine::megatron) return true;
    // A layout that does not fit matters only if it is nearer to the limit than those dropped before.
    const std::optional<RankedLayout>& nearest = found.too_large_replayed.nearest;
    if (nearest && memories.exceeds(ranked.layout, std::max(found.limit_bytes, nearest->peak_bytes))) return false;
    return memories.of(ranked.layout).deciding_bytes() <= found.limit_bytes;
}

void drop_too_large(SearchResult& found, RankedLayout ranked, ReplayedMemories& memories) {
    TooLarge& dropped = found.too_large_replayed;
    ++dropped.count;
    --found.feasible;
    if (dropped.nearest && memories.exceeds(ranked.layout, dropped.nearest->peak_bytes)) return;
    ranked.peak_bytes = memories.of(ranked.layout).deciding_bytes();
    if (!dropped.nearest || ranked.peak_bytes < dropped.nearest->peak_bytes) dropped.nearest = std::move(ranked);
}

std::vector<std::size_t> keep_fitting_when_replayed(SearchResult& found, ReplayedMemories& memories, const Enough& enough) {
    std::vector<RankedLayout> kept;
    std::vector<std::size_t> places;
    for (std::size_t place = 0; place < found.best.size() && !enough(kept); ++place) {
        RankedLayout& ranked = found.best[place];
        const auto& dropped = found.too_large_replayed.nearest;
        memories.prepare(std::span(found.best).subspan(place),
                         dropped ? std::optional(std::max(found.limit_bytes, dropped->peak_bytes)) : std::nullopt);
        if (!fits_when_replayed(found, ranked, memories)) {
            drop_too_large(found, std::move(ranked), memories);
            continue;
        }
        if (ranked.layout.engine == Engine::megatron) ranked.peak_bytes = memories.of(ranked.layout).deciding_bytes();
        kept.push_back(std::move(ranked));
        places.push_back(place);
    }
    found.best = std::move(kept);
    return places;
}

}  // namespace mgplan::planner
