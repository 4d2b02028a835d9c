#include "planner/free_memory_first.hpp"

#include <algorithm>
#include <tuple>

#include "planner/exact_ranking.hpp"

namespace mgplan::planner {
namespace {

bool leaves_more(const RankedLayout& a, const RankedLayout& b) {
    if (a.peak_bytes != b.peak_bytes) return a.peak_bytes < b.peak_bytes;
    return ranks_before(a, b, Objective::throughput);
}

}  // namespace

std::size_t bring_frugal_ones_forward(SearchResult& found) {
    auto& best = found.best;
    if (best.empty()) return 0;
    const double most = (1 + kNearlyAsFast) * best.front().iteration_seconds;
    std::vector<RankedLayout> forward;
    for (const RankedLayout& member : found.pareto) {
        if (member.iteration_seconds > most) continue;
        std::erase_if(best, [&](const RankedLayout& each) {
            return each.iteration_seconds == member.iteration_seconds && each.layout == member.layout;
        });
        forward.push_back(member);
    }
    best.insert(best.begin(), forward.begin(), forward.end());
    return forward.size();
}

std::size_t put_free_memory_first(SearchResult& found, ReplayedMemories& memories) {
    auto& best = found.best;
    std::size_t dropped = 0;
    while (dropped < found.replayed && !fits_when_replayed(found, best[dropped], memories)) {
        drop_too_large(found, std::move(best[dropped]), memories);
        ++dropped;
    }
    best.erase(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(dropped));
    if (dropped == found.replayed) return dropped;
    found.fastest_seconds = best.front().iteration_seconds;
    const double most = (1 + kNearlyAsFast) * *found.fastest_seconds;
    const auto near = std::find_if(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(found.replayed - dropped),
                                   [most](const RankedLayout& each) { return each.iteration_seconds > most; });
    std::stable_sort(best.begin(), near, leaves_more);
    sort_as_replayed(best, static_cast<std::size_t>(near - best.begin()), memories);
    return dropped;
}

void sort_as_replayed(std::vector<RankedLayout>& best, std::size_t count, ReplayedMemories& memories) {
    const auto end = best.begin() + static_cast<std::ptrdiff_t>(std::min({count, kSortedAsReplayed, best.size()}));
    for (auto each = best.begin(); each != end; ++each) {
        if (each->layout.engine == Engine::megatron) each->peak_bytes = memories.of(each->layout).deciding_bytes();
    }
    std::stable_sort(best.begin(), end, leaves_more);
}

}  // namespace mgplan::planner
