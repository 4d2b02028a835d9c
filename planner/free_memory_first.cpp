#include "planner/free_memory_first.hpp"

#include <algorithm>
#include <utility>

#include "planner/exact_ranking.hpp"

namespace mgplan::planner {
namespace {

bool leaves_more(const RankedLayout& a, const RankedLayout& b) {
    if (a.peak_bytes != b.peak_bytes) return a.peak_bytes < b.peak_bytes;
    return ranks_before(a, b, Objective::throughput);
}

bool is_faster(const RankedLayout& a, const RankedLayout& b) {
    return ranks_before(a, b, Objective::throughput);
}

void take_replayed_bytes(std::vector<RankedLayout>& best, std::size_t count, const BytesOf& replayed) {
    for (std::size_t i = 0; i < count; ++i) {
        if (best[i].layout.engine == Engine::megatron) best[i].peak_bytes = replayed(best[i].layout);
    }
}

BytesOf bytes_of(ReplayedMemories& memories) {
    return [&memories](const Layout& layout) { return memories.of(layout).deciding_bytes(); };
}

struct Place {
    std::size_t index = 0;  ///< in a list sorted by time
    std::int64_t bytes = 0;
};

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

void order_by_free_memory(std::vector<RankedLayout>& best, std::size_t count) {
    std::vector<Place> left;
    for (std::size_t i = 0; i < count; ++i) left.push_back({i, best[i].peak_bytes});
    std::vector<RankedLayout> ordered;
    ordered.reserve(count);
    while (!left.empty()) {
        const std::int64_t least = std::min_element(left.begin(), left.end(), [](Place a, Place b) { return a.bytes < b.bytes; })->bytes;
        auto next = std::find_if(left.begin(), left.end(), [least](Place each) { return each.bytes < least + kWorthMoreTime; });
        if (left.front().bytes < next->bytes + kWorthMoreTime) next = left.begin();
        ordered.push_back(std::move(best[next->index]));
        left.erase(next);
    }
    std::move(ordered.begin(), ordered.end(), best.begin());
}

void order_nearly_as_fast(std::vector<RankedLayout>& best, std::size_t count, const BytesOf& replayed) {
    if (count == 0) return;
    const Layout fastest = best.front().layout;
    order_by_free_memory(best, count);
    const auto at = [&](std::size_t index) { return best.begin() + static_cast<std::ptrdiff_t>(index); };
    const auto is_fastest = [&](const RankedLayout& each) { return each.layout == fastest; };
    const auto place = static_cast<std::size_t>(std::find_if(best.begin(), at(count), is_fastest) - best.begin());
    std::size_t sorted = std::min(count, kSortedAsReplayed);
    const bool behind = place >= sorted;
    if (behind) std::rotate(at(sorted), at(place), at(place + 1));
    if (behind) ++sorted;
    take_replayed_bytes(best, sorted, replayed);
    std::sort(best.begin(), at(sorted), is_faster);
    order_by_free_memory(best, sorted);
    // By the search's estimate some of the later layouts leave the same memory free as the earlier ones.
    if (behind && is_fastest(best[sorted - 1])) std::rotate(at(sorted - 1), at(sorted), at(place + 1));
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
    const auto replayed = best.begin() + static_cast<std::ptrdiff_t>(found.replayed - dropped);
    const auto near = std::find_if(best.begin(), replayed, [most](const RankedLayout& each) { return each.iteration_seconds > most; });
    order_nearly_as_fast(best, static_cast<std::size_t>(near - best.begin()), bytes_of(memories));
    return dropped;
}

void sort_as_replayed(std::vector<RankedLayout>& best, ReplayedMemories& memories) {
    const std::size_t count = std::min(kSortedAsReplayed, best.size());
    take_replayed_bytes(best, count, bytes_of(memories));
    std::stable_sort(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(count), leaves_more);
}

}  // namespace mgplan::planner
