#include "runtime/memory/pool_allocator.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/sanitizers.hpp"

namespace mgplan::runtime::pool_allocator_test {
namespace {

using model::MemoryCategory;

TEST(PoolAllocator, CountsWhatIsAskedForByCategory) {
    PoolAllocator pool;
    std::byte* const a = pool.take(100, MemoryCategory::parameters, "a");
    std::byte* const b = pool.take(50, MemoryCategory::activations, "b");
    pool.give_back(b, 50, MemoryCategory::activations);
    std::byte* const c = pool.take(30, MemoryCategory::activations, "c");
    std::byte* const d = pool.take(30, MemoryCategory::workspace, "d");
    EXPECT_THAT(pool.use().current, ::testing::ElementsAre(100, 0, 0, 30, 0, 30));
    EXPECT_THAT(pool.use().high_water, ::testing::ElementsAre(100, 0, 0, 50, 0, 30));
    EXPECT_EQ(pool.use().peak, 160);
    EXPECT_THAT(pool.use().at_peak, ::testing::ElementsAre(100, 0, 0, 30, 0, 30));
    pool.give_back(d, 30, MemoryCategory::workspace);
    pool.restart_high_water();
    EXPECT_EQ(pool.use().peak, 130);
    EXPECT_THAT(pool.use().high_water, ::testing::ElementsAre(100, 0, 0, 30, 0, 0));
    pool.give_back(a, 100, MemoryCategory::parameters);
    pool.give_back(c, 30, MemoryCategory::activations);
    EXPECT_THAT(pool.use().current, ::testing::Each(0));
    pool.trim();
    EXPECT_EQ(pool.reserved_bytes(), 0);
}

TEST(PoolAllocator, GivesAlignedMemoryThatDoesNotOverlap) {
    PoolAllocator pool;
    struct Live {
        std::byte* memory;
        std::int64_t bytes;
        int mark;
    };
    std::vector<Live> live;
    std::mt19937 random(5);
    for (int round = 0; round < 3000; ++round) {
        if (live.empty() || random() % 5 < 3) {
            const auto bytes = static_cast<std::int64_t>(1 + random() % (1U << (random() % 14)));
            std::byte* const memory = pool.take(bytes, MemoryCategory::activations, "test");
            ASSERT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0U) << bytes;
            std::memset(memory, round % 251, static_cast<std::size_t>(bytes));
            live.push_back({memory, bytes, round % 251});
        } else {
            std::swap(live[random() % live.size()], live.back());
            const Live gone = live.back();
            live.pop_back();
            for (std::int64_t i = 0; i < gone.bytes; ++i) ASSERT_EQ(gone.memory[i], static_cast<std::byte>(gone.mark));
            pool.give_back(gone.memory, gone.bytes, MemoryCategory::activations);
        }
        ASSERT_GE(pool.reserved_bytes(), pool.use().current[static_cast<std::size_t>(MemoryCategory::activations)]);
    }
    for (const Live& rest : live) pool.give_back(rest.memory, rest.bytes, MemoryCategory::activations);
}

#ifdef MGPLAN_ADDRESS_SANITIZER
TEST(PoolAllocatorDeathTest, ShowsTheSanitizerWhatIsUsedAfterItsEndOrPastIt) {
    PoolAllocator pool;
    std::byte* const memory = pool.take(100, MemoryCategory::activations, "test");
    const volatile std::byte* const read = memory;
    EXPECT_DEATH((void)read[100], "use-after-poison");
    pool.give_back(memory, 100, MemoryCategory::activations);
    EXPECT_DEATH((void)read[0], "use-after-poison");
    ASSERT_EQ(pool.take(98, MemoryCategory::activations, "the same block again"), memory);
    (void)read[97];
    EXPECT_DEATH((void)read[98], "use-after-poison");
    pool.give_back(memory, 98, MemoryCategory::activations);
}
#endif

TEST(PoolAllocator, ReservesAsManyBlocksOfASizeAsLiveAtOneTime) {
    PoolAllocator pool;
    std::map<std::int64_t, std::pair<std::int64_t, std::int64_t>> blocks;  // by size: alive now, most at one time
    std::vector<std::pair<std::byte*, std::int64_t>> live;
    std::mt19937 random(7);
    for (int round = 0; round < 5000; ++round) {
        if (live.empty() || random() % 9 < 5 - static_cast<unsigned>(round) / 2000) {
            const auto bytes = static_cast<std::int64_t>(1 + random() % (1U << (random() % 13)));
            live.emplace_back(pool.take(bytes, MemoryCategory::activations, "test"), bytes);
            auto& [now, most] = blocks[PoolAllocator::block_bytes_for(bytes)];
            most = std::max(most, ++now);
        } else {
            std::swap(live[random() % live.size()], live.back());
            const auto [memory, bytes] = live.back();
            live.pop_back();
            pool.give_back(memory, bytes, MemoryCategory::activations);
            --blocks[PoolAllocator::block_bytes_for(bytes)].first;
        }
    }
    std::int64_t expected = 0;
    for (const auto& [bytes, count] : blocks) expected += bytes * count.second;
    EXPECT_EQ(pool.reserved_bytes(), expected);
    for (const auto& [memory, bytes] : live) pool.give_back(memory, bytes, MemoryCategory::activations);
}

TEST(PoolAllocator, WastesAtMostAnEighth) {
    for (std::int64_t bytes = 1; bytes < 5000; ++bytes) {
        const std::int64_t block = PoolAllocator::block_bytes_for(bytes);
        EXPECT_GE(block, bytes);
        EXPECT_EQ(block % 64, 0) << bytes;
        EXPECT_LT(static_cast<double>(block), static_cast<double>(bytes) * 1.125 + 64) << bytes;
        EXPECT_EQ(PoolAllocator::block_bytes_for(block), block) << bytes;
    }
    for (const std::int64_t bytes : {513, 1000, 1025, 65537, 1000001}) {
        PoolAllocator pool;
        std::byte* const memory = pool.take(bytes, MemoryCategory::activations, "test");
        EXPECT_LE(static_cast<double>(pool.reserved_bytes()), static_cast<double>(bytes) * 1.125 + 64) << bytes;
        pool.give_back(memory, bytes, MemoryCategory::activations);
    }
}

TEST(PoolAllocator, TellsItsSourceWhatMayBeTouched) {
    class Watched final : public BlockSource {
    public:
        std::vector<std::pair<char, std::int64_t>> calls;
        void* take(std::int64_t bytes) noexcept override { return host_blocks().take(bytes); }
        void give_back(void* block, std::int64_t bytes) noexcept override { host_blocks().give_back(block, bytes); }
        void spoil(void* /*block*/, std::int64_t /*bytes*/) noexcept override {}
        bool is_spoiled(const void* /*block*/, std::int64_t /*bytes*/) noexcept override { return true; }
        void allow(void* /*memory*/, std::int64_t bytes) noexcept override { calls.emplace_back('+', bytes); }
        void forbid(void* /*memory*/, std::int64_t bytes) noexcept override { calls.emplace_back('-', bytes); }
    } source;
    PoolAllocator pool(source);
    pool.give_back(pool.take(100, MemoryCategory::activations, "test"), 100, MemoryCategory::activations);
    const std::int64_t block = PoolAllocator::block_bytes_for(100);
    EXPECT_GT(block, 100);
    EXPECT_EQ(pool.reserved_bytes(), block) << "it is kept";
    EXPECT_THAT(source.calls, ::testing::ElementsAre(std::pair('-', block), std::pair('+', 100), std::pair('-', block)));
}

TEST(PoolAllocator, GivesNothingBackWhereItsSourceSaysThatMemoryIsNotWhatLacks) {
    class Broken final : public BlockSource {
    public:
        bool broken = false;
        int given_back = 0;
        void* take(std::int64_t bytes) override {
            if (broken) throw std::runtime_error("the context is gone");
            return host_blocks().take(bytes);
        }
        void give_back(void* block, std::int64_t bytes) noexcept override {
            ++given_back;
            host_blocks().give_back(block, bytes);
        }
        void spoil(void* /*block*/, std::int64_t /*bytes*/) noexcept override {}
        bool is_spoiled(const void* /*block*/, std::int64_t /*bytes*/) noexcept override { return true; }
    } source;
    PoolAllocator pool(source);
    pool.give_back(pool.take(100, MemoryCategory::activations, "kept"), 100, MemoryCategory::activations);
    source.broken = true;
    EXPECT_THROW((void)pool.take(1000, MemoryCategory::activations, "more"), std::runtime_error);
    EXPECT_EQ(source.given_back, 0);
    EXPECT_EQ(pool.reserved_bytes(), PoolAllocator::block_bytes_for(100));
    source.broken = false;
    pool.give_back(pool.take(1000, MemoryCategory::activations, "more"), 1000, MemoryCategory::activations);
    EXPECT_EQ(pool.reserved_bytes(), PoolAllocator::block_bytes_for(100) + PoolAllocator::block_bytes_for(1000));
}

TEST(PoolAllocator, ThrowsWhenThereIsNoMemory) {
    PoolAllocator pool;
#ifndef MGPLAN_ADDRESS_SANITIZER  // the sanitizer ends the program instead
    EXPECT_THROW((void)pool.take(std::int64_t{1} << 59, MemoryCategory::activations, "too much"), std::bad_alloc);
#endif
    EXPECT_THROW((void)pool.take(std::int64_t{1} << 62, MemoryCategory::activations, "far too much"), std::bad_alloc);
    EXPECT_EQ(pool.use().peak, 0) << "what was not given does not count";
}

}  // namespace
}  // namespace mgplan::runtime::pool_allocator_test
