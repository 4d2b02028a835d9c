#include "model/device/arena_plan.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace mgplan::model::arena_plan_test {
namespace {

bool meet(const ArenaItem& a, const ArenaItem& b) {
    return a.begin < b.end && b.begin < a.end;
}

/// Empty where the plan is sound, else what is wrong with it.
std::string fault_of(const std::vector<ArenaItem>& items, const ArenaPlan& plan, std::int64_t alignment) {
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (plan.offsets[i] % alignment != 0) return "misaligned";
        if (plan.offsets[i] < 0 || plan.offsets[i] + items[i].bytes > plan.total) return "outside the arena";
        for (std::size_t j = 0; j < i; ++j) {
            const bool apart = plan.offsets[i] + items[i].bytes <= plan.offsets[j] || plan.offsets[j] + items[j].bytes <= plan.offsets[i];
            if (meet(items[i], items[j]) && !apart) return "two living tensors overlap";
        }
    }
    return {};
}

TEST(ArenaPlan, ReusesMemoryOfTensorsThatAreGone) {
    const std::vector<ArenaItem> items = {{1000, 0, 2}, {1000, 2, 4}, {500, 1, 3}};
    const ArenaPlan plan = plan_arena(items, 1);
    EXPECT_EQ(plan.total, 1500);
    EXPECT_EQ(plan.lower_bound, 1500);
    EXPECT_EQ(plan.offsets[0], plan.offsets[1]);
    EXPECT_EQ(plan.waste(), 0);
}

TEST(ArenaPlan, RoundsSizesUpToTheAlignment) {
    const std::vector<ArenaItem> items = {{1, 0, 1}, {257, 0, 1}, {0, 0, 1}};
    const ArenaPlan plan = plan_arena(items, 256);
    EXPECT_EQ(plan.total, 768);
    EXPECT_EQ(plan.lower_bound, 768);
}

TEST(ArenaPlan, OfNothingIsEmpty) {
    EXPECT_EQ(plan_arena({}).total, 0);
    EXPECT_EQ(plan_arena({}).waste(), 0);
}

/// Forward tensors that live until their layer's backward, with temporaries in both directions.
TEST(ArenaPlan, WastesLittleOnTheTensorsOfATransformerStack) {
    std::vector<ArenaItem> items;
    constexpr std::int64_t kLayers = 32, kOps = 12;
    const std::int64_t saved[] = {64, 64, 96, 80, 1, 64, 64, 448, 224};
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        std::int64_t op = 0;
        for (const std::int64_t mib : saved) {
            const std::int64_t begin = layer * kOps + op, end = 2 * kLayers * kOps - layer * kOps - op;
            items.push_back({mib << 20, begin, end});
            ++op;
        }
        items.push_back({96 << 20, layer * kOps + 3, layer * kOps + 4});
        for (std::int64_t k = 0; k < 8; ++k) {
            const std::int64_t begin = 2 * kLayers * kOps - (layer + 1) * kOps + k;
            items.push_back({saved[static_cast<std::size_t>(8 - k)] << 20, begin, begin + 2});
        }
    }
    const ArenaPlan plan = plan_arena(items);
    EXPECT_EQ(fault_of(items, plan, 256), "");
    EXPECT_LE(plan.waste(), 0.03);
}

RC_GTEST_PROP(ArenaPlan, IsSoundForAnyLives, ()) {
    const auto count = *rc::gen::inRange(0, 40);
    std::vector<ArenaItem> items;
    for (int i = 0; i < count; ++i) {
        const auto begin = *rc::gen::inRange(0, 30);
        items.push_back({*rc::gen::inRange(0, 5000), begin, begin + *rc::gen::inRange(1, 20)});
    }
    const std::int64_t alignment = std::int64_t{1} << *rc::gen::inRange(0, 9);
    const ArenaPlan plan = plan_arena(items, alignment);
    RC_ASSERT(fault_of(items, plan, alignment).empty());
    RC_ASSERT(plan.total >= plan.lower_bound);
    std::int64_t sum = 0;
    for (const auto& item : items) sum += (item.bytes + alignment - 1) / alignment * alignment;
    RC_ASSERT(plan.total <= sum);
}

TEST(ArenaPlan, KeepsClearOfSettledTensorsAndUsesTheRoomBetweenThem) {
    const std::vector<ArenaObstacle> obstacles = {{{100, 0, 10}, 0}, {{100, 0, 10}, 300}, {{100, 0, 4}, 100}};
    ArenaRules rules;
    rules.alignment = 1;
    rules.obstacles = obstacles;
    const std::vector<ArenaItem> items = {{200, 4, 6}, {200, 2, 6}};
    const ArenaPlan plan = plan_arena(items, rules);
    EXPECT_EQ(plan.offsets[0], 100) << "behind the end of the third";
    EXPECT_EQ(plan.offsets[1], 400);
    EXPECT_EQ(plan.total, 600);
    EXPECT_EQ(plan.lower_bound, 600);
}

TEST(ArenaPlan, LaysNothingAcrossAWall) {
    const std::vector<std::int64_t> walls = {100, 250};
    ArenaRules rules;
    rules.alignment = 1;
    rules.walls = walls;
    const std::vector<ArenaItem> items = {{120, 0, 1}, {90, 0, 1}, {30, 0, 1}, {200, 0, 1}};
    const ArenaPlan plan = plan_arena(items, rules);
    EXPECT_EQ(plan.offsets, (std::vector<std::int64_t>{100, 0, 220, 250}));
    EXPECT_EQ(plan.total, 450);
}

RC_GTEST_PROP(ArenaPlan, IsSoundAmongSettledTensorsAndWalls, ()) {
    const auto some_items = [] {
        std::vector<ArenaItem> items;
        const auto count = *rc::gen::inRange(0, 15);
        for (int i = 0; i < count; ++i) {
            const auto begin = *rc::gen::inRange(0, 30);
            items.push_back({*rc::gen::inRange(0, 3000), begin, begin + *rc::gen::inRange(1, 20)});
        }
        return items;
    };
    const std::int64_t alignment = std::int64_t{1} << *rc::gen::inRange(0, 9);
    std::vector<ArenaItem> all = some_items();
    const ArenaPlan settled = plan_arena(all, alignment);
    std::vector<ArenaObstacle> obstacles;
    for (std::size_t i = 0; i < all.size(); ++i) obstacles.push_back({all[i], settled.offsets[i]});
    std::vector<std::int64_t> walls;
    const auto wall_count = *rc::gen::inRange(0, 4);
    for (int i = 0; i < wall_count; ++i) walls.push_back((walls.empty() ? 0 : walls.back()) + *rc::gen::inRange(0, 20) * alignment);
    ArenaRules rules;
    rules.alignment = alignment;
    rules.obstacles = obstacles;
    rules.walls = walls;
    const std::vector<ArenaItem> items = some_items();
    ArenaPlan plan = plan_arena(items, rules);
    for (std::size_t i = 0; i < items.size(); ++i) {
        for (const std::int64_t wall : walls)
            RC_ASSERT(items[i].bytes == 0 || plan.offsets[i] >= wall || plan.offsets[i] + items[i].bytes <= wall);
    }
    // All together, settled ones included.
    all.insert(all.end(), items.begin(), items.end());
    plan.offsets.insert(plan.offsets.begin(), settled.offsets.begin(), settled.offsets.end());
    RC_ASSERT(fault_of(all, plan, alignment).empty());
    RC_ASSERT(plan.total >= plan.lower_bound);
}

}  // namespace
}  // namespace mgplan::model::arena_plan_test
