#include "simulator/memory/caching_allocator.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace mgplan::simulator::caching_allocator_test {
namespace {

constexpr std::int64_t kKi = 1024, kMi = 1024 * kKi;

TEST(CachingAllocator, TakesSmallSizesFromSegmentsOfTwoMebibytes) {
    CachingAllocator allocator;
    (void)allocator.allocate(1);
    EXPECT_EQ(allocator.allocated_bytes(), 512);
    EXPECT_EQ(allocator.reserved_bytes(), 2 * kMi);
    (void)allocator.allocate(kMi);
    EXPECT_EQ(allocator.reserved_bytes(), 2 * kMi);
    (void)allocator.allocate(kMi);
    EXPECT_EQ(allocator.reserved_bytes(), 4 * kMi);
}

TEST(CachingAllocator, TakesMiddleSizesFromSegmentsOfTwentyMebibytes) {
    CachingAllocator allocator;
    (void)allocator.allocate(3 * kMi);
    EXPECT_EQ(allocator.reserved_bytes(), 20 * kMi);
    (void)allocator.allocate(9 * kMi);
    EXPECT_EQ(allocator.reserved_bytes(), 20 * kMi);
}

TEST(CachingAllocator, RoundsSegmentsOfLargeSizesToTwoMebibytes) {
    CachingAllocator allocator;
    (void)allocator.allocate(11 * kMi);
    EXPECT_EQ(allocator.reserved_bytes(), 12 * kMi);
}

TEST(CachingAllocator, KeepsFreedSegmentsForTheNextTaker) {
    CachingAllocator allocator;
    const auto first = allocator.allocate(100 * kMi);
    allocator.free(first);
    EXPECT_EQ(allocator.allocated_bytes(), 0);
    (void)allocator.allocate(64 * kMi);
    (void)allocator.allocate(30 * kMi);  // the rest of the same segment
    EXPECT_EQ(allocator.reserved_bytes(), 100 * kMi);
    EXPECT_EQ(allocator.peak_allocated_bytes(), 100 * kMi);
}

TEST(CachingAllocator, LeavesARemainderOfAMebibyteWithItsBlock) {
    CachingAllocator allocator;
    allocator.free(allocator.allocate(32 * kMi));
    (void)allocator.allocate(31 * kMi);
    EXPECT_EQ(allocator.allocated_bytes(), 32 * kMi);
}

TEST(CachingAllocator, MergesNeighboursThatAreFree) {
    CachingAllocator allocator;
    allocator.free(allocator.allocate(60 * kMi));
    const auto a = allocator.allocate(20 * kMi), b = allocator.allocate(20 * kMi), c = allocator.allocate(20 * kMi);
    allocator.free(a);
    allocator.free(c);
    allocator.free(b);
    (void)allocator.allocate(60 * kMi);
    EXPECT_EQ(allocator.reserved_bytes(), 60 * kMi);
}

TEST(CachingAllocator, FragmentsWhereFreedBlocksAreTooSmall) {
    CachingAllocator allocator;
    std::vector<std::int64_t> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(allocator.allocate(40 * kMi));
    for (int i = 0; i < 8; i += 2) allocator.free(blocks[static_cast<std::size_t>(i)]);
    (void)allocator.allocate(60 * kMi);  // no free segment is large enough
    EXPECT_EQ(allocator.reserved_bytes(), 8 * 40 * kMi + 60 * kMi);
}

TEST(CachingAllocator, WithExpandableSegmentsGrowsInPagesInstead) {
    CachingAllocator allocator({.expandable_segments = true});
    std::vector<std::int64_t> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(allocator.allocate(40 * kMi));
    for (const auto block : blocks) allocator.free(block);
    (void)allocator.allocate(300 * kMi);  // the freed pages are one range
    EXPECT_EQ(allocator.reserved_bytes(), 320 * kMi);
    (void)allocator.allocate(50 * kMi);  // 20 MiB are free at the end: 40 more are mapped
    EXPECT_EQ(allocator.reserved_bytes(), 360 * kMi);
}

TEST(CachingAllocator, GivesFreeSegmentsBackAtItsLimit) {
    constexpr std::int64_t kUnit = std::int64_t{32} << 20;
    CachingAllocator allocator({.limit_bytes = 4 * kUnit});
    const std::int64_t kept = allocator.allocate(kUnit), first = allocator.allocate(kUnit), second = allocator.allocate(kUnit);
    allocator.free(first);
    allocator.free(second);
    EXPECT_EQ(allocator.reserved_bytes(), 3 * kUnit) << "segments are kept";
    // Neither free segment is large enough, and a new one does not fit beside them.
    const std::int64_t large = allocator.allocate(3 * kUnit);
    EXPECT_EQ(allocator.reserved_bytes(), 4 * kUnit);
    EXPECT_EQ(allocator.peak_reserved_bytes(), 4 * kUnit);
    allocator.free(large);
    // A segment with a tensor in it stays, and what is needed is taken.
    const std::int64_t part = allocator.allocate(kUnit);
    (void)allocator.allocate(3 * kUnit);
    EXPECT_EQ(allocator.reserved_bytes(), 7 * kUnit);
    allocator.free(part);
    allocator.free(kept);
    EXPECT_EQ(allocator.allocated_bytes(), 3 * kUnit);
}

}  // namespace
}  // namespace mgplan::simulator::caching_allocator_test
