#pragma once
// Plans offsets in an arena for tensors with known lifetimes, so that it needs no allocator.

#include <cstdint>
#include <span>
#include <vector>

namespace mgplan::model {

/// One tensor's bytes and the instants between which it lives: taken at `begin`, given back at `end` (> begin). Lives that
/// only touch (one's end is the other's begin) may share memory.
struct ArenaItem {
    std::int64_t bytes = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

/// A tensor with a fixed place.
struct ArenaObstacle {
    ArenaItem item;
    std::int64_t offset = 0;
};

struct ArenaPlan {
    std::vector<std::int64_t> offsets;  ///< of each item, in the order given; multiples of the alignment
    std::int64_t total = 0;             ///< bytes of the arena
    std::int64_t lower_bound = 0;       ///< the most bytes alive at once, each item rounded up to the alignment: no plan needs less
    /// Bytes of the plan beyond the bound, as a share of the bound.
    [[nodiscard]] double waste() const {
        return lower_bound == 0 ? 0 : static_cast<double>(total - lower_bound) / static_cast<double>(lower_bound);
    }
};

/// Constraints of a plan besides the items' lifetimes.
struct ArenaRules {
    std::int64_t alignment = 256;              ///< of every item, in bytes: a power of two
    std::span<const ArenaObstacle> obstacles;  ///< tensors with fixed places; count for total and lower bound like items
    std::span<const std::int64_t> walls;       ///< no item lies on both sides of one; ascending multiples of the alignment
};

/// Places items so that no two that live at the same time overlap. Tries several orders (by size; by lifetime times size; by
/// lifetime; by begin), puts each item into the smallest gap that takes it, and returns the best of the plans: dynamic
/// storage allocation is NP-hard (Garey & Johnson, problem SR2), and placing large items first is what arena planners of
/// inference engines do (Pisarchyk & Lee, arXiv 2001.03288). Deterministic. Items of no bytes get offset 0. For n items that
/// each overlap in time with k others: O(n·k·log n).
[[nodiscard]] ArenaPlan plan_arena(std::span<const ArenaItem> items, const ArenaRules& rules);
[[nodiscard]] ArenaPlan plan_arena(std::span<const ArenaItem> items, std::int64_t alignment = 256);

/// The most bytes alive at once.
[[nodiscard]] std::int64_t most_alive(std::span<const ArenaItem> items);

}  // namespace mgplan::model
