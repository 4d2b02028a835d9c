// Buffers in which no matrix is cut.

#include "model/optimizer/whole_shards.hpp"

#include <gtest/gtest.h>

#include "model/optimizer/shard_ranges.hpp"

namespace mgplan::model::whole_shards_test {
namespace {

BufferParameter matrix(std::int64_t numel) {
    return {.numel = numel,
            .dtype = Dtype::bf16,
            .shared_embedding = false,
            .expert = false,
            .matrix = true,
            .orthogonalise_cost = static_cast<double>(numel)};
}

TEST(WholeShards, GiveEachRankWholeMatricesLargestFirst) {
    const std::vector<BufferParameter> parameters{matrix(128), matrix(512), matrix(256), matrix(64), {.numel = 100}};
    const BufferLayouts layouts = lay_out_buffers(parameters, {.dp = 2, .matrices_apart = true});
    ASSERT_EQ(layouts.buffers.size(), 2U);
    const BufferLayout& buffer = layouts.buffers[0];
    EXPECT_TRUE(buffer.matrices);
    EXPECT_FALSE(layouts.buffers[1].matrices);
    ASSERT_EQ(buffer.buckets.size(), 1U);
    // 512 on the first rank, then 256, 128 and 64 on the second, which always has least.
    EXPECT_EQ(buffer.numel, 2 * 512);
    EXPECT_EQ(buffer.spans, (std::vector<BufferSpan>{{1, 0, 0, 512}, {2, 0, 512, 768}, {0, 0, 768, 896}, {3, 0, 896, 960}}));
    EXPECT_EQ(owned_numel(buffer, 1), 256 + 128 + 64);
}

TEST(WholeShards, CutNoMatrixWhateverTheBuckets) {
    std::vector<BufferParameter> parameters;
    for (std::int64_t i = 1; i <= 60; ++i) parameters.push_back(matrix(i * 37 % 1000 + 1));
    for (const std::int64_t dp : {1, 2, 3, 7, 16}) {
        for (const std::int64_t size : {1, 3000, 1'000'000}) {
            const BufferOptions options{.dp = dp, .bucket_size = size, .matrices_apart = true};
            const BufferLayout buffer = lay_out_buffers(parameters, options).buffers.at(0);
            std::vector<int> seen(parameters.size());
            for (std::size_t b = 0; b < buffer.buckets.size(); ++b) {
                EXPECT_EQ((buffer.buckets[b].end - buffer.buckets[b].start) % bucket_end_multiple(dp, false), 0);
                for (std::int64_t rank = 0; rank < dp; ++rank) {
                    for (const ShardRange& range : shard_ranges(buffer, b, rank)) {
                        const auto index = static_cast<std::size_t>(range.parameter);
                        EXPECT_EQ(range.in_param, (ElementRange{0, parameters[index].numel}));
                        EXPECT_EQ(range.world.start % kParameterMultiple, 0);
                        ++seen[index];
                    }
                }
            }
            EXPECT_EQ(seen, std::vector<int>(parameters.size(), 1)) << dp << " " << size;
        }
    }
}

/// A bucket is not closed before its largest matrix would fill no more than a rank's share.
TEST(WholeShards, KeepWhatALargeMatrixLeavesEmptySmall) {
    std::vector<BufferParameter> parameters(64, matrix(1024));
    parameters.push_back(matrix(16384));
    const BufferLayout buffer = lay_out_buffers(parameters, {.dp = 4, .bucket_size = 1, .matrices_apart = true}).buffers.at(0);
    // 48 small ones beside the large one fill four equal shards, and each four of the other 16 a bucket: no padding at all.
    EXPECT_EQ(buffer.buckets.size(), 1U + 4U);
    EXPECT_EQ(buffer.numel, 64 * 1024 + 16384);
}

TEST(WholeShards, LayOutAsEverWhereMatricesStayAmongTheOthers) {
    const std::vector<BufferParameter> parameters{matrix(128), {.numel = 100}};
    const BufferLayouts layouts = lay_out_buffers(parameters, {.dp = 2});
    ASSERT_EQ(layouts.buffers.size(), 1U);
    EXPECT_FALSE(layouts.buffers[0].matrices);
}

}  // namespace
}  // namespace mgplan::model::whole_shards_test
