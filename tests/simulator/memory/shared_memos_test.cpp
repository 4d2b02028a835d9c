#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/memory/replay_memo.hpp"
#include "simulator/memory/shared_schedules.hpp"
#include "simulator/memory/split_stages.hpp"

namespace mgplan::simulator::shared_memos_test {
namespace {

bool same(const std::vector<LiveState>& a, const std::vector<LiveState>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const LiveState& x, const LiveState& y) { return x.op == y.op && x.live == y.live; });
}

TEST(SharedSchedules, GiveAllThreadsTheSame) {
    SharedSchedules schedules;
    ScheduleRequest request{4, 3, 24, {}, {}, false};
    request.group_size = 4;
    const std::vector<std::int64_t> alike{5, 5, 5}, unlike{1, 2, 3};
    std::vector<const std::vector<LiveState>*> live(4);
    std::vector<const GraphResidency*> residencies(4);
    std::vector<std::int64_t> held(8);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            live[t] = &schedules.live(4, 3, 24, 4, 1);
            residencies[t] = &schedules.residency(request, 1, GraphPolicy::megatron);
            held[2 * t] = residencies[t]->held(t % 2 == 0 ? alike : unlike);
            held[2 * t + 1] = residencies[t]->held(t % 2 == 0 ? unlike : alike);
        });
    }
    for (std::thread& thread : threads) thread.join();
    const GraphResidency alone(request, 1, GraphPolicy::megatron);
    for (std::size_t t = 0; t < 4; ++t) {
        EXPECT_EQ(live[t], live[0]);
        EXPECT_EQ(residencies[t], residencies[0]);
        EXPECT_EQ(held[2 * t], alone.held(t % 2 == 0 ? alike : unlike));
        EXPECT_EQ(held[2 * t + 1], alone.held(t % 2 == 0 ? unlike : alike));
    }
    EXPECT_TRUE(same(*live[0], live_states(4, 3, 24, 4, 1)));
}

TEST(SharedSchedules, TellEverythingApartThatTheyDependOn) {
    SharedSchedules schedules;
    ScheduleRequest request{4, 2, 16, {}, {}, false};
    request.group_size = 4;
    const GraphResidency* first = &schedules.residency(request, 1, GraphPolicy::megatron);
    EXPECT_NE(first, &schedules.residency(request, 2, GraphPolicy::megatron));
    EXPECT_NE(first, &schedules.residency(request, 1, GraphPolicy::slots));
    request.group_size = 8;
    EXPECT_NE(first, &schedules.residency(request, 1, GraphPolicy::megatron));
    request.group_size = 4;
    request.microbatches = 20;
    EXPECT_NE(first, &schedules.residency(request, 1, GraphPolicy::megatron));
    EXPECT_NE(&schedules.live(4, 2, 16, 4, 0), &schedules.live(4, 2, 16, 4, 1));
}

TEST(SplitStages, KeepWhatTheyGaveInItsPlace) {
    ModelSpec model;
    model.layers = 24;
    SharedSchedules schedules;
    SplitStages stages(layer_kinds(model), schedules);
    Layout layout;
    const auto ask = [&](int pp) {
        layout.sizes.pp = pp;
        layout.split = std::make_shared<const StageSplit>(automatic_stage_split(24, 0, pp, 1).value());
        return stages.chunks(layout).kind.front();
    };
    const int first = ask(1);
    const ChunkContents* contents = &stages.contents(first);
    const ChunkRecipe* recipe = &stages.recipe(first, nullptr);
    for (const int pp : {2, 3, 4, 6, 8, 12, 24}) (void)stages.recipe(ask(pp), nullptr);
    ChunkRecompute full;
    (void)stages.recipe(first, &full);
    EXPECT_EQ(&stages.contents(first), contents);
    EXPECT_EQ(&stages.recipe(first, nullptr), recipe);
}

ReplayKey key_of(std::int64_t bytes) {
    ReplayKey key;
    key.split = std::make_shared<const StageSplit>(automatic_stage_split(4, 0, 1, 1).value());
    key.limit = 1000;
    key.trace.tensors = {{bytes, 0, 1}};
    return key;
}

/// Counts what is played, and lets a replay with `bytes` have a fragmentation of one tenth.
struct Counted {
    int played = 0;

    std::optional<ReservedMemory> ask(ReplayMemo& memo, ReplayKey key, double most_fragmentation) {
        return memo.of(std::move(key), most_fragmentation, [&](const ReplayKey& one) -> std::optional<ReservedMemory> {
            ++played;
            if (most_fragmentation < 0.1) return std::nullopt;
            ReservedMemory memory;
            memory.allocated = one.trace.tensors.front().bytes;
            return memory;
        });
    }
};

TEST(ReplayMemo, PlaysEqualListsOnce) {
    ReplayMemo memo;
    Counted counted;
    ASSERT_TRUE(counted.ask(memo, key_of(100), 0.2));
    EXPECT_EQ(counted.ask(memo, key_of(100), 0.3)->allocated, 100) << "of equal contents, whatever object holds them";
    EXPECT_EQ(counted.played, 1);
    EXPECT_EQ(counted.ask(memo, key_of(200), 0.2)->allocated, 200);
    EXPECT_EQ(counted.played, 2);
    ReplayKey more = key_of(100);
    more.limit = 2000;
    (void)counted.ask(memo, more, 0.2);
    more.update = 1;
    (void)counted.ask(memo, more, 0.2);
    more.pp_rank = 1;
    (void)counted.ask(memo, more, 0.2);
    more.sizes.tp = 2;
    (void)counted.ask(memo, more, 0.2);
    EXPECT_EQ(counted.played, 6);
    more.trace.tensors.push_back({100, -1, -1});
    (void)counted.ask(memo, more, 0.2);
    EXPECT_EQ(counted.played, 7) << "what an allocator may take, what the update takes, the rank and the shard count";
}

TEST(ReplayMemo, AsksAgainWhereMoreMayBeWasted) {
    ReplayMemo memo;
    Counted counted;
    EXPECT_FALSE(counted.ask(memo, key_of(100), 0.05));
    EXPECT_FALSE(counted.ask(memo, key_of(100), 0.05));
    EXPECT_FALSE(counted.ask(memo, key_of(100), 0.01)) << "less than it exceeded before";
    EXPECT_EQ(counted.played, 1);
    EXPECT_TRUE(counted.ask(memo, key_of(100), 0.2));
    EXPECT_TRUE(counted.ask(memo, key_of(100), 0.05)) << "known by now";
    EXPECT_EQ(counted.played, 2);
}

TEST(ReplayMemo, ForgetsWithoutHarm) {
    ReplayMemo memo;
    Counted counted;
    for (std::int64_t bytes = 1; bytes <= 300; ++bytes) EXPECT_EQ(counted.ask(memo, key_of(bytes), 0.2)->allocated, bytes);
    EXPECT_EQ(counted.ask(memo, key_of(1), 0.2)->allocated, 1);
}

}  // namespace
}  // namespace mgplan::simulator::shared_memos_test
