#include "simulator/memory/allocator_replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace mgplan::simulator::allocator_replay_test {
namespace {

constexpr std::int64_t kMi = std::int64_t{1} << 20;

TEST(AllocatorReplay, ReservesWhatASingleTensorNeeds) {
    const std::vector<Allocation> iteration{{100 * kMi, 0, 1}};
    const ReservedMemory memory = replay_allocator({}, iteration, 3);
    EXPECT_EQ(memory.first, 100 * kMi);
    EXPECT_EQ(memory.steady, 100 * kMi);
    EXPECT_EQ(memory.allocated, 100 * kMi);
    EXPECT_EQ(memory.fragmentation(), 0);
}

TEST(AllocatorReplay, KeepsWhatTheSetupKeeps) {
    const std::vector<Allocation> setup{{64 * kMi, 0, -1}, {32 * kMi, 1, 2}};
    const std::vector<Allocation> iteration{{32 * kMi, 0, 1}};  // into the hole of the setup
    const ReservedMemory memory = replay_allocator(setup, iteration, 1);
    EXPECT_EQ(memory.steady, 96 * kMi);
    EXPECT_EQ(memory.allocated, 96 * kMi);
}

TEST(AllocatorReplay, TakesWhatAnIterationKeepsOnce) {
    const std::vector<Allocation> iteration{{40 * kMi, 0, -1}};
    EXPECT_EQ(replay_allocator({}, iteration, 3).steady, 40 * kMi);
}

// In the first iteration the state made at its end lands in the hole that activations left; in the second they find it taken.
TEST(AllocatorReplay, FindsOtherHolesInTheSecondIteration) {
    const std::vector<Allocation> iteration{{100 * kMi, 0, 1}, {30 * kMi, 2, -1}};
    const ReservedMemory memory = replay_allocator({}, iteration, 2);
    EXPECT_EQ(memory.first, 100 * kMi);
    EXPECT_EQ(memory.steady, 200 * kMi);
    EXPECT_EQ(memory.allocated, 130 * kMi);
    EXPECT_EQ(memory.fragmentation(), 70 * kMi);
}

TEST(AllocatorReplay, LeavesOutWhatHasNoBytes) {
    const std::vector<Allocation> iteration{{0, 0, 1}, {512, 2, 3}};
    EXPECT_EQ(replay_allocator({}, iteration, 1).steady, 2 * kMi);
}

/// Far over the limit each segment of thousands looks for others to release; where none is free, that must not cost a look at every rest.
TEST(AllocatorReplay, EndsSoonFarOverTheLimit) {
    constexpr std::int64_t kTensors = 60'000, kTensor = 21 * kMi / 2, kSegment = 12 * kMi;
    std::vector<Allocation> setup;
    for (std::int64_t i = 0; i < kTensors; ++i) setup.push_back({kTensor, i, -1});
    EXPECT_EQ(replay_allocator(setup, {}, 1, {.limit_bytes = kMi}).steady, kTensors * kSegment);
}

/// Tensors of all sizes, some of which stay.
std::vector<Allocation> made_up(std::mt19937& random, int count, int staying) {
    std::vector<Allocation> list;
    const auto draw = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
    for (int i = 0; i < count; ++i) {
        const std::int64_t taken = draw(1000);
        const std::int64_t bytes = draw(std::int64_t{1} << (10 + draw(18)));
        list.push_back({bytes, taken, i < staying ? -1 : taken + 1 + draw(100)});
    }
    return list;
}

TEST(AllocatorReplay, StopsOnlyWhereMoreIsCertain) {
    constexpr CachingAllocatorOptions kKinds[] = {
        {}, {.expandable_segments = true}, {.max_split_bytes = 20 * kMi}, {.limit_bytes = 300 * kMi}};
    int stopped = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const auto setup = made_up(random, 20, 10), iteration = made_up(random, 200, 10);
        const CachingAllocatorOptions& options = kKinds[seed % 4];
        const ReservedMemory whole = replay_allocator(setup, iteration, 3, options);
        const double share = static_cast<double>(whole.fragmentation()) / static_cast<double>(whole.allocated);
        for (const double most : {-0.5, 0.0, 0.5 * share, 0.9 * share, share, 1.1 * share}) {
            const auto within = replay_allocator_within(most, setup, iteration, 3, options);
            if (!within) {
                ++stopped;
                EXPECT_GT(share, most) << seed;
                continue;
            }
            EXPECT_EQ(within->first, whole.first);
            EXPECT_EQ(within->steady, whole.steady);
            EXPECT_EQ(within->allocated, whole.allocated);
        }
        EXPECT_FALSE(replay_allocator_within(-0.5, setup, iteration, 3, options)) << seed;
    }
    EXPECT_GT(stopped, 300);
}

RankSchedule schedule_of(const std::vector<std::int16_t>& order) {
    RankSchedule schedule;
    for (const std::int16_t entry : order) {
        const int chunk = std::abs(entry) - 1;
        schedule.ops.push_back({entry > 0 ? Pass::forward : Pass::backward, static_cast<std::int16_t>(chunk), 0});
    }
    return schedule;
}

std::int64_t peak_of(const std::vector<Allocation>& list) {
    std::int64_t peak = 0;
    for (const Allocation& at : list) {
        std::int64_t live = 0;
        for (const Allocation& other : list) {
            if (other.taken <= at.taken && (other.returned < 0 || other.returned > at.taken)) live += other.bytes;
        }
        peak = std::max(peak, live);
    }
    return peak;
}

/// Forward at [10, 20): one tensor saved for the backward at [20, 30), one transient in each.
IterationTrace one_chunk() {
    return {{{100, 11, 28}, {7, 12, 13}, {5, 21, 22}}, {{1, 10, 20}, {-1, 20, 30}}};
}

TEST(PlayedAllocations, KeepSavedTensorsOfEveryMicrobatchOnItsWay) {
    const auto all_first = play_allocations(one_chunk(), schedule_of({1, 1, 1, -1, -1, -1}));
    EXPECT_EQ(all_first.size(), 9U);
    EXPECT_EQ(peak_of(all_first), 307);
    EXPECT_EQ(peak_of(play_allocations(one_chunk(), schedule_of({1, -1, 1, -1, 1, -1}))), 107);
    for (const Allocation& allocation : all_first) EXPECT_GE(allocation.returned, 0);
}

TEST(PlayedAllocations, KeepAMessageUntilTheNextOne) {
    IterationTrace trace = one_chunk();
    trace.tensors.push_back({1000, 15, 40});  // sent, and returned behind the passes
    const auto played = play_allocations(trace, schedule_of({1, 1, 1, -1, -1, -1}));
    EXPECT_EQ(peak_of(played), 2300);  // the one before is done when the pass ends that made the next
    EXPECT_EQ(std::count_if(played.begin(), played.end(), [](const Allocation& a) { return a.bytes == 1000; }), 3);
    for (const Allocation& allocation : played) EXPECT_GE(allocation.returned, 0);
}

TEST(PlayedAllocations, DoOnceWhatLiesAroundThePasses) {
    IterationTrace trace = one_chunk();
    trace.tensors.push_back({50, 1, 60});
    trace.tensors.push_back({60, 50, 51});
    const auto played = play_allocations(trace, schedule_of({1, -1, 1, -1}));
    EXPECT_EQ(std::count_if(played.begin(), played.end(), [](const Allocation& a) { return a.bytes == 50; }), 1);
    EXPECT_EQ(played.front().bytes, 50);
    EXPECT_EQ(played.back().bytes, 60);
}

}  // namespace
}  // namespace mgplan::simulator::allocator_replay_test
