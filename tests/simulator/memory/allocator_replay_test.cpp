#include "simulator/memory/allocator_replay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <utility>

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

/// Sums of live blocks, and of live bytes as requested, entry by entry; blocks lie apart and in segments.
struct Replayed {
    std::int64_t blocks = 0, requested = 0, segments = 0, most_blocks = 0, most_segments = 0;
    int freed_segments = 0;
    std::vector<std::int64_t> most_requested;  ///< by part, from the beginning
};
Replayed replay_of(const ReplayRecord& record, std::span<const Allocation> setup, std::span<const Allocation> iteration) {
    using Action = ReplayRecord::Action;
    Replayed sums;
    std::map<std::int64_t, std::int64_t> segments;                         // bytes by number
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> blocks;  // bytes by segment and offset
    for (std::size_t part = 0; part < record.parts.size(); ++part) {
        sums.most_requested.push_back(sums.requested);
        const std::size_t end = part + 1 < record.parts.size() ? record.parts[part + 1].begin : record.events.size();
        for (std::size_t i = record.parts[part].begin; i < end; ++i) {
            const auto& [action, allocation, place] = record.events[i];
            const std::int64_t bytes = (part == 0 ? setup : iteration)[allocation].bytes;
            if (action == Action::take) {
                EXPECT_LE(bytes, place.bytes);
                EXPECT_LE(place.offset + place.bytes, segments.at(place.segment));
                const auto [block, fresh] = blocks.emplace(std::pair(place.segment, place.offset), place.bytes);
                EXPECT_TRUE(fresh);
                const auto next = std::next(block), none = blocks.end();
                if (next != none && next->first.first == place.segment) {
                    EXPECT_LE(place.offset + place.bytes, next->first.second);
                }
                if (block != blocks.begin() && std::prev(block)->first.first == place.segment) {
                    EXPECT_LE(std::prev(block)->first.second + std::prev(block)->second, place.offset);
                }
                sums.blocks += place.bytes;
                sums.requested += bytes;
            } else if (action == Action::give_back) {
                EXPECT_EQ(blocks.at({place.segment, place.offset}), place.bytes);
                blocks.erase({place.segment, place.offset});
                sums.blocks -= place.bytes;
                sums.requested -= bytes;
            } else if (action == Action::take_segment) {
                EXPECT_TRUE(segments.emplace(place.segment, place.bytes).second);
                sums.segments += place.bytes;
            } else {
                EXPECT_EQ(segments.at(place.segment), place.bytes);
                segments.erase(place.segment);
                sums.segments -= place.bytes;
                ++sums.freed_segments;
            }
            sums.most_blocks = std::max(sums.most_blocks, sums.blocks);
            sums.most_requested.back() = std::max(sums.most_requested.back(), sums.requested);
            sums.most_segments = std::max(sums.most_segments, sums.segments);
        }
    }
    return sums;
}

TEST(AllocatorReplay, RecordsTheEventsThatItCounts) {
    int freed = 0;
    for (unsigned seed = 0; seed < 40; ++seed) {
        std::mt19937 random(seed);
        const auto setup = made_up(random, 20, 10), iteration = made_up(random, 200, 10);
        const CachingAllocatorOptions options{.limit_bytes = (seed % 2 == 0 ? 300 : 100'000) * kMi};
        ReplayRecord record;
        const auto recorded = replay_allocator_within(1e9, setup, iteration, 3, options, &record);
        const ReservedMemory memory = replay_allocator(setup, iteration, 3, options);
        ASSERT_TRUE(recorded);
        EXPECT_EQ(recorded->allocated, memory.allocated);
        const Replayed sums = replay_of(record, setup, iteration);
        EXPECT_EQ(sums.most_blocks, memory.allocated);
        EXPECT_EQ(sums.most_segments, memory.steady);
        EXPECT_EQ(sums.requested, record.live_bytes);
        ASSERT_GE(record.parts.size(), 3U) << "the setup and at least two iterations";
        for (std::size_t part = 0; part < record.parts.size(); ++part)
            EXPECT_EQ(record.parts[part].peak_bytes, sums.most_requested[part]) << seed << " " << part;
        freed += sums.freed_segments;
    }
    EXPECT_GT(freed, 0);
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

TEST(PlayedAllocations, SayWhichPassMakesThem) {
    IterationTrace trace = one_chunk();
    trace.tensors.push_back({50, 1, 60});  // before the passes
    RankSchedule schedule = schedule_of({1, 1, -1, -1});
    for (const std::size_t second : {1U, 3U}) schedule.ops[second].microbatch = 1;
    std::vector<PlayedTensor> origins;
    const auto played = play_allocations(trace, schedule, {}, &origins);
    ASSERT_EQ(origins.size(), played.size());
    std::vector<PipelineOp> passes;
    for (std::size_t i = 0; i < played.size(); ++i) {
        EXPECT_EQ(trace.tensors[origins[i].tensor].bytes, played[i].bytes);
        EXPECT_EQ(origins[i].pass.has_value(), origins[i].tensor != 3);
        if (origins[i].pass && (passes.empty() || passes.back() != *origins[i].pass)) passes.push_back(*origins[i].pass);
    }
    EXPECT_EQ(passes, schedule.ops);
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
