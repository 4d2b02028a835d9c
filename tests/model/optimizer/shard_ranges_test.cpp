#include "model/optimizer/shard_ranges.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace mgplan::model::shard_ranges_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ShardRanges, CutBucketsWhereverTheBorderFalls) {
    // One bucket of 256: 100 elements at 0, 70 at 128 (parameter 0), padding from 198 on; shards of 64.
    const std::vector<BufferParameter> parameters{{.numel = 70}, {.numel = 100}};
    const BufferLayout buffer = lay_out_buffers(parameters, {.dp = 4}).buffers[0];
    EXPECT_THAT(shard_ranges(buffer, 0, 0), ElementsAre(ShardRange{1, {0, 64}, {0, 64}, {0, 64}, {0, 64}}));
    EXPECT_THAT(shard_ranges(buffer, 0, 1), ElementsAre(ShardRange{1, {64, 100}, {64, 100}, {0, 36}, {64, 100}}));
    EXPECT_THAT(shard_ranges(buffer, 0, 2), ElementsAre(ShardRange{0, {128, 192}, {128, 192}, {0, 64}, {0, 64}}));
    EXPECT_THAT(shard_ranges(buffer, 0, 3), ElementsAre(ShardRange{0, {192, 198}, {192, 198}, {0, 6}, {64, 70}}));
    EXPECT_EQ(owned_numel(buffer, 1), 36);
}

TEST(ShardRanges, CountFromTheirOwnBucket) {
    const std::vector<BufferParameter> parameters{{.numel = 100}, {.numel = 128}};
    const BufferLayout buffer = lay_out_buffers(parameters, {.dp = 2, .bucket_size = 1}).buffers[0];
    EXPECT_EQ(shard_of_bucket(buffer, 1, 1), (ElementRange{192, 256}));
    EXPECT_THAT(shard_ranges(buffer, 1, 1), ElementsAre(ShardRange{0, {192, 228}, {64, 100}, {0, 36}, {64, 100}}));
}

TEST(ShardRanges, LeaveRanksWithoutAParameter) {
    const std::vector<BufferParameter> parameters{{.numel = 1}};
    const BufferLayout buffer = lay_out_buffers(parameters, {.dp = 8}).buffers[0];
    EXPECT_EQ(owned_numel(buffer, 0), 1);
    for (std::int64_t rank = 1; rank < 8; ++rank) EXPECT_THAT(shard_ranges(buffer, 0, rank), IsEmpty());
}

TEST(ShardRanges, GiveEveryElementToExactlyOneRank) {
    EXPECT_TRUE(rc::check([] {
        std::vector<BufferParameter> parameters;
        const auto count = *rc::gen::inRange(1, 20);
        for (int i = 0; i < count; ++i) parameters.push_back({.numel = *rc::gen::inRange<std::int64_t>(1, 700)});
        BufferOptions options{.dp = *rc::gen::inRange<std::int64_t>(1, 12)};
        options.bucket_size = *rc::gen::inRange<std::int64_t>(1, 3000);
        const BufferLayout buffer = lay_out_buffers(parameters, options).buffers[0];

        std::vector<std::int64_t> next(parameters.size(), 0);
        std::int64_t owned = 0;
        for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
            for (std::int64_t rank = 0; rank < buffer.dp; ++rank) {
                for (const ShardRange& range : shard_ranges(buffer, bucket, rank)) {
                    // Ranks in order own a parameter from its first element to its last.
                    auto& expected = next[static_cast<std::size_t>(range.parameter)];
                    RC_ASSERT(range.in_param.start == expected);
                    expected = range.in_param.end;
                    RC_ASSERT(range.in_param.size() > 0);
                    RC_ASSERT(range.world.size() == range.in_param.size() && range.local.size() == range.in_param.size());
                    RC_ASSERT(range.world.start - range.world_in_bucket.start == buffer.buckets[bucket].start);
                    RC_ASSERT(range.local.end <= (buffer.buckets[bucket].end - buffer.buckets[bucket].start) / buffer.dp);
                }
            }
        }
        for (std::size_t i = 0; i < parameters.size(); ++i) RC_ASSERT(next[i] == parameters[i].numel);
        for (std::int64_t rank = 0; rank < buffer.dp; ++rank) owned += owned_numel(buffer, rank);
        std::int64_t all = 0;
        for (const auto& parameter : parameters) all += parameter.numel;
        RC_ASSERT(owned == all);
    }));
}

}  // namespace
}  // namespace mgplan::model::shard_ranges_test
