#include "model/device/arena_plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Finds those of the lives added so far that overlap a given one: lives in the order of their begins below a tree of
/// latest ends, so that a search costs O(log n) for each life found.
class LivesInTree {
public:
    explicit LivesInTree(std::vector<ArenaItem> items) : items_(std::move(items)), order_(items_.size()), place_(items_.size()) {
        std::iota(order_.begin(), order_.end(), std::size_t{0});
        std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return items_[a].begin < items_[b].begin; });
        for (std::size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
        for (const std::size_t index : order_) begins_.push_back(items_[index].begin);
        while (leaves_ < items_.size()) leaves_ *= 2;
        latest_end_.assign(2 * leaves_, kNever);
    }

    void clear() { std::fill(latest_end_.begin(), latest_end_.end(), kNever); }

    void add(std::size_t index) {
        std::size_t node = leaves_ + place_[index];
        latest_end_[node] = items_[index].end;
        for (node /= 2; node > 0; node /= 2) latest_end_[node] = std::max(latest_end_[2 * node], latest_end_[2 * node + 1]);
    }

    /// Appends those that live at the same time as `item`.
    void find(const ArenaItem& item, std::vector<std::size_t>& found) const {
        const auto before = std::lower_bound(begins_.begin(), begins_.end(), item.end) - begins_.begin();  // they begin before it ends
        find(1, 0, leaves_, static_cast<std::size_t>(before), item.begin, found);
    }

private:
    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

    void find(std::size_t node, std::size_t first, std::size_t count, std::size_t before, std::int64_t begin,
              std::vector<std::size_t>& found) const {
        if (first >= before || latest_end_[node] == kNever || latest_end_[node] <= begin) return;
        if (count == 1) {
            found.push_back(order_[first]);
            return;
        }
        find(2 * node, first, count / 2, before, begin, found);
        find(2 * node + 1, first + count / 2, count / 2, before, begin, found);
    }

    std::vector<ArenaItem> items_;
    std::vector<std::size_t> order_;    ///< by begin
    std::vector<std::size_t> place_;    ///< of each item in that order
    std::vector<std::int64_t> begins_;  ///< in that order
    std::size_t leaves_ = 1;
    std::vector<std::int64_t> latest_end_;  ///< of those taken up below each node
};

std::int64_t rounded(std::int64_t bytes, std::int64_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
}

/// Obstacles first, then the items; sizes are multiples of the alignment.
struct Things {
    std::vector<ArenaItem> lives;
    std::vector<std::int64_t> offsets;  ///< settled, or to be
    std::size_t obstacles = 0;
};

/// Places the items in this order, each in the tightest gap between those it meets; among equal gaps in the lowest.
std::int64_t place(Things& things, LivesInTree& tree, const std::vector<std::size_t>& order, std::span<const std::int64_t> walls) {
    tree.clear();
    std::int64_t total = 0;
    const auto settle = [&](std::size_t index) {
        tree.add(index);
        total = std::max(total, things.offsets[index] + things.lives[index].bytes);
    };
    for (std::size_t i = 0; i < things.obstacles; ++i) {
        if (things.lives[i].bytes > 0) settle(i);
    }
    std::vector<std::size_t> met;
    for (const std::size_t index : order) {
        const ArenaItem& item = things.lives[index];
        if (item.bytes == 0) {
            things.offsets[index] = 0;
            continue;
        }
        met.clear();
        tree.find(item, met);
        std::sort(met.begin(), met.end(), [&](std::size_t a, std::size_t b) {
            return things.offsets[a] != things.offsets[b] ? things.offsets[a] < things.offsets[b] : a < b;
        });
        std::int64_t best = -1, best_gap = std::numeric_limits<std::int64_t>::max(), behind = 0;
        const auto look_at_gap = [&](std::int64_t end) {
            if (end - behind >= item.bytes && end - behind < best_gap) {
                best = behind;
                best_gap = end - behind;
            }
        };
        auto wall = walls.begin();
        const auto pass_walls = [&](std::int64_t until) {
            for (; wall != walls.end() && *wall <= until; ++wall) {
                look_at_gap(*wall);
                behind = std::max(behind, *wall);
            }
        };
        for (const std::size_t other : met) {
            pass_walls(things.offsets[other]);
            look_at_gap(things.offsets[other]);
            behind = std::max(behind, things.offsets[other] + things.lives[other].bytes);
        }
        pass_walls(std::numeric_limits<std::int64_t>::max());
        things.offsets[index] = best >= 0 ? best : behind;
        settle(index);
    }
    return total;
}

}  // namespace

std::int64_t most_alive(std::span<const ArenaItem> items) {
    struct Change {
        std::int64_t when, bytes;
    };
    std::vector<Change> changes;
    changes.reserve(2 * items.size());
    for (const ArenaItem& item : items) {
        changes.push_back({item.begin, item.bytes});
        changes.push_back({item.end, -item.bytes});
    }
    // Items that end at an instant go before those that begin there.
    std::sort(changes.begin(), changes.end(),
              [](const Change& a, const Change& b) { return a.when != b.when ? a.when < b.when : a.bytes < b.bytes; });
    std::int64_t alive = 0, most = 0;
    for (const Change& change : changes) most = std::max(most, alive += change.bytes);
    return most;
}

ArenaPlan plan_arena(std::span<const ArenaItem> items, const ArenaRules& rules) {
    const std::int64_t alignment = rules.alignment;
    MGPLAN_ASSERT(alignment > 0 && (alignment & (alignment - 1)) == 0, "an alignment is a power of two");
    MGPLAN_ASSERT(std::is_sorted(rules.walls.begin(), rules.walls.end()) &&
                      std::all_of(rules.walls.begin(), rules.walls.end(), [&](std::int64_t wall) { return wall % alignment == 0; }),
                  "walls are in order and aligned");
    Things things;
    things.obstacles = rules.obstacles.size();
    for (const ArenaObstacle& obstacle : rules.obstacles) {
        things.lives.push_back(obstacle.item);
        things.offsets.push_back(obstacle.offset);
    }
    things.lives.insert(things.lives.end(), items.begin(), items.end());
    things.offsets.resize(things.lives.size(), 0);
    for (ArenaItem& item : things.lives) {
        MGPLAN_ASSERT(item.bytes >= 0 && item.end > item.begin, "a tensor has a size and a life");
        item.bytes = rounded(item.bytes, alignment);
    }
    const std::vector<ArenaItem>& lives = things.lives;
    const std::int64_t bound = most_alive(lives);
    LivesInTree tree(lives);
    const auto area = [&](std::size_t i) {
        return static_cast<double>(lives[i].bytes) * static_cast<double>(lives[i].end - lives[i].begin);
    };
    using Before = std::function<bool(std::size_t, std::size_t)>;
    const Before orders[] = {
        [&](std::size_t a, std::size_t b) { return lives[a].bytes > lives[b].bytes; },
        [&](std::size_t a, std::size_t b) { return area(a) > area(b); },
        [&](std::size_t a, std::size_t b) { return lives[a].end - lives[a].begin > lives[b].end - lives[b].begin; },
        [&](std::size_t a, std::size_t b) { return lives[a].begin < lives[b].begin; },
    };
    std::vector<std::size_t> by_begin(items.size());
    std::iota(by_begin.begin(), by_begin.end(), things.obstacles);
    // The earlier of two that are equal otherwise goes first: tensors of one size then fill their places as a stack does.
    std::stable_sort(by_begin.begin(), by_begin.end(), [&](std::size_t a, std::size_t b) { return lives[a].begin < lives[b].begin; });
    ArenaPlan best;
    best.total = std::numeric_limits<std::int64_t>::max();
    for (const Before& before : orders) {
        std::vector<std::size_t> order = by_begin;
        std::stable_sort(order.begin(), order.end(), before);
        const std::int64_t total = place(things, tree, order, rules.walls);
        if (total < best.total) {
            best.total = total;
            best.offsets.assign(things.offsets.begin() + static_cast<std::ptrdiff_t>(things.obstacles), things.offsets.end());
        }
        if (best.total == bound) break;
    }
    best.lower_bound = bound;
    return best;
}

ArenaPlan plan_arena(std::span<const ArenaItem> items, std::int64_t alignment) {
    ArenaRules rules;
    rules.alignment = alignment;
    return plan_arena(items, rules);
}

}  // namespace mgplan::model
