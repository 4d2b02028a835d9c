#include "model/device/arena_plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "plan/errors.hpp"

namespace mgplan::model {
namespace {

std::int64_t rounded(std::int64_t bytes, std::int64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

std::int64_t most_alive(std::span<const ArenaItem> items) {
    struct Change {
        std::int64_t when, bytes;
    };
    std::vector<Change> changes;
    for (const ArenaItem& item : items) {
        changes.push_back({item.begin, item.bytes});
        changes.push_back({item.end, -item.bytes});
    }
    // What ends at an instant goes before what begins there.
    std::sort(changes.begin(), changes.end(),
              [](const Change& a, const Change& b) { return a.when != b.when ? a.when < b.when : a.bytes < b.bytes; });
    std::int64_t alive = 0, most = 0;
    for (const Change& change : changes) most = std::max(most, alive += change.bytes);
    return most;
}

/// Places the items in this order, each in the tightest gap between those it meets; among equal gaps in the lowest.
ArenaPlan place(std::span<const ArenaItem> items, const std::vector<std::size_t>& order) {
    ArenaPlan plan;
    plan.offsets.assign(items.size(), 0);
    struct Placed {
        std::int64_t offset, bytes, begin, end;
    };
    std::vector<Placed> placed;  // by offset
    for (const std::size_t index : order) {
        const ArenaItem& item = items[index];
        if (item.bytes == 0) continue;
        std::int64_t best = -1, best_gap = std::numeric_limits<std::int64_t>::max(), behind = 0;
        for (const Placed& other : placed) {
            if (other.end <= item.begin || item.end <= other.begin) continue;
            const std::int64_t gap = other.offset - behind;
            if (gap >= item.bytes && gap < best_gap) {
                best = behind;
                best_gap = gap;
            }
            behind = std::max(behind, other.offset + other.bytes);
        }
        const std::int64_t offset = best >= 0 ? best : behind;
        plan.offsets[index] = offset;
        plan.total = std::max(plan.total, offset + item.bytes);
        const auto at =
            std::upper_bound(placed.begin(), placed.end(), offset, [](std::int64_t o, const Placed& p) { return o < p.offset; });
        placed.insert(at, {offset, item.bytes, item.begin, item.end});
    }
    return plan;
}

}  // namespace

ArenaPlan plan_arena(std::span<const ArenaItem> items, std::int64_t alignment) {
    MGPLAN_ASSERT(alignment > 0 && (alignment & (alignment - 1)) == 0, "an alignment is a power of two");
    std::vector<ArenaItem> aligned(items.begin(), items.end());
    for (ArenaItem& item : aligned) {
        MGPLAN_ASSERT(item.bytes >= 0 && item.end > item.begin, "a tensor has a size and a life");
        item.bytes = rounded(item.bytes, alignment);
    }
    const std::int64_t bound = most_alive(aligned);
    const auto area = [&](std::size_t i) {
        return static_cast<double>(aligned[i].bytes) * static_cast<double>(aligned[i].end - aligned[i].begin);
    };
    using Before = std::function<bool(std::size_t, std::size_t)>;
    const Before orders[] = {
        [&](std::size_t a, std::size_t b) { return aligned[a].bytes > aligned[b].bytes; },
        [&](std::size_t a, std::size_t b) { return area(a) > area(b); },
        [&](std::size_t a, std::size_t b) { return aligned[a].end - aligned[a].begin > aligned[b].end - aligned[b].begin; },
        [&](std::size_t a, std::size_t b) { return aligned[a].begin < aligned[b].begin; },
    };
    ArenaPlan best;
    bool first = true;
    for (const Before& before : orders) {
        std::vector<std::size_t> order(aligned.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), before);
        ArenaPlan plan = place(aligned, order);
        if (first || plan.total < best.total) best = std::move(plan);
        first = false;
        if (best.total == bound) break;
    }
    best.lower_bound = bound;
    return best;
}

}  // namespace mgplan::model
