// Buffer layouts small enough to check by hand; Megatron-LM's own answers are replayed by tests/golden.

#include "model/optimizer/buffer_layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "plan/text/errors.hpp"

namespace mgplan::model::buffer_layout_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<BufferParameter> bf16(std::initializer_list<std::int64_t> sizes) {
    std::vector<BufferParameter> list;
    for (const std::int64_t size : sizes) list.push_back({.numel = size});
    return list;
}

std::string refusal(const std::vector<BufferParameter>& parameters, const BufferOptions& options) {
    try {
        (void)lay_out_buffers(parameters, options);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(BufferLayout, PutsTheLastParameterFirstAtMultiplesOf64) {
    const auto layouts = lay_out_buffers(bf16({10, 100, 64}), {.dp = 2});
    ASSERT_EQ(layouts.buffers.size(), 1U);
    const BufferLayout& buffer = layouts.buffers[0];
    // 64 at 0; 100 at 64, ends at 164; 10 at 192, ends at 202; 202 rounded up to lcm(2, 128) = 128 is 256.
    EXPECT_THAT(buffer.spans, ElementsAre(BufferSpan{2, 0, 0, 64}, BufferSpan{1, 0, 64, 164}, BufferSpan{0, 0, 192, 202}));
    EXPECT_THAT(buffer.buckets, ElementsAre(Bucket{0, 256, 202, 0, 3}));
    EXPECT_EQ(buffer.numel, 256);
    EXPECT_EQ(buffer.numel_unpadded, 202);
    EXPECT_EQ(buffer.grad_dtype, Dtype::fp32);
}

TEST(BufferLayout, NeitherAlignsNorPadsWithoutTheDistributedOptimizer) {
    const auto layouts = lay_out_buffers(bf16({10, 100, 64}), {.dp = 2, .bucket_size = 100, .distributed_optimizer = false});
    EXPECT_THAT(layouts.buffers[0].buckets, ElementsAre(Bucket{0, 164, 164, 0, 2}, Bucket{164, 174, 10, 2, 3}));
}

TEST(BufferLayout, ClosesABucketBehindTheParameterThatFillsIt) {
    // 64 + 64 elements reach the bound of 128; 100 does not and is the rest.
    const auto layouts = lay_out_buffers(bf16({100, 64, 64}), {.dp = 3, .bucket_size = 128});
    // lcm(3, 128) = 384.
    EXPECT_THAT(layouts.buffers[0].buckets, ElementsAre(Bucket{0, 384, 128, 0, 2}, Bucket{384, 768, 100, 2, 3}));
    EXPECT_THAT(layouts.bucket_groups, ElementsAre(BucketGroup{{0, 0}}, BucketGroup{{0, 1}}));
}

TEST(BufferLayout, CutsBySizeOnlyInTheFirstChunkOfTheFirstStage) {
    EXPECT_EQ(lay_out_buffers(bf16({100, 64, 64}), {.dp = 3, .bucket_size = 128, .pp_rank = 1}).buffers[0].buckets.size(), 1U);
    EXPECT_EQ(lay_out_buffers(bf16({100, 64, 64}), {.dp = 3, .bucket_size = 128, .disable_bucketing = true}).buffers[0].buckets.size(), 1U);
}

TEST(BufferLayout, GivesASharedEmbeddingABucketOfItsOwn) {
    auto parameters = bf16({70, 30, 20});
    parameters[1].shared_embedding = true;
    const auto layouts = lay_out_buffers(parameters, {.dp = 1});
    // 20 at 0; the embedding would start at 64, so the open bucket counts 64 and is padded to 128.
    EXPECT_THAT(layouts.buffers[0].buckets, ElementsAre(Bucket{0, 128, 64, 0, 1}, Bucket{128, 256, 30, 1, 2}, Bucket{256, 384, 70, 2, 3}));
    const auto plain = lay_out_buffers(parameters, {.dp = 1, .distributed_optimizer = false});
    EXPECT_EQ(plain.buffers[0].buckets.size(), 1U);
}

TEST(BufferLayout, MakesNoEmptyBucketAroundASharedEmbedding) {
    auto parameters = bf16({70, 30});
    parameters[0].shared_embedding = parameters[1].shared_embedding = true;
    EXPECT_EQ(lay_out_buffers(parameters, {.dp = 1}).buffers[0].buckets.size(), 2U);
}

TEST(BufferLayout, PadsToTwoToTheSixteenOnRequest) {
    EXPECT_EQ(lay_out_buffers(bf16({10}), {.dp = 3, .pad_buckets_for_high_nccl_busbw = true}).buffers[0].numel, 3 * 65'536);
    EXPECT_EQ(bucket_end_multiple(6, false), 384);
    EXPECT_EQ(bucket_end_multiple(256, false), 256);
}

TEST(BufferLayout, KeepsExpertsAndEachStorageTypeApart) {
    std::vector<BufferParameter> parameters{
        {.numel = 1, .dtype = Dtype::fp32}, {.numel = 2}, {.numel = 3, .expert = true}, {.numel = 4, .dtype = Dtype::fp32}};
    const auto layouts = lay_out_buffers(parameters, {.dp = 4, .edp = 2, .grad_dtype = std::nullopt});
    ASSERT_EQ(layouts.buffers.size(), 3U);
    EXPECT_EQ(layouts.buffers[0].param_dtype, Dtype::fp32);
    EXPECT_EQ(layouts.buffers[0].grad_dtype, Dtype::fp32);
    EXPECT_EQ(layouts.buffers[0].spans.size(), 2U);
    EXPECT_EQ(layouts.buffers[1].grad_dtype, Dtype::bf16);
    EXPECT_TRUE(layouts.buffers[2].expert);
    EXPECT_EQ(layouts.buffers[2].dp, 2);
    EXPECT_THAT(layouts.bucket_groups, ElementsAre(BucketGroup{{0, 0}}, BucketGroup{{1, 0}}));
    EXPECT_THAT(layouts.expert_bucket_groups, ElementsAre(BucketGroup{{2, 0}}));
}

TEST(BufferLayout, JoinsWhatIsNotFp8WithTheLastFp8Bucket) {
    std::vector<BufferParameter> parameters{{.numel = 8}, {.numel = 128, .dtype = Dtype::fp8}, {.numel = 128, .dtype = Dtype::fp8}};
    BufferOptions options{.dp = 1, .bucket_size = 128, .grad_dtype = std::nullopt};
    const auto layouts = lay_out_buffers(parameters, options);
    EXPECT_EQ(layouts.buffers[1].grad_dtype, Dtype::bf16);
    EXPECT_THAT(layouts.bucket_groups, ElementsAre(BucketGroup{{1, 0}}, BucketGroup{{1, 1}, {0, 0}}));
    options.disable_bucketing = true;
    EXPECT_THAT(lay_out_buffers(parameters, options).bucket_groups, ElementsAre(BucketGroup{{0, 0}, {1, 0}}));
}

TEST(BufferLayout, OfNothingIsNothing) {
    EXPECT_EQ(lay_out_buffers({}, {}), BufferLayouts{});
}

TEST(BufferLayout, NamesAllThatIsOutOfRange) {
    const std::string said = refusal(bf16({1, 0}), {.dp = 0, .edp = std::int64_t{1} << 40, .bucket_size = 0, .pp_rank = -1});
    EXPECT_THAT(said, HasSubstr("dp = 0 is out of range; use 1 to 16777216"));
    EXPECT_THAT(said, HasSubstr("edp = 1099511627776 is out of range"));
    EXPECT_THAT(said, HasSubstr("bucket size = 0 is too small"));
    EXPECT_THAT(said, HasSubstr("pp rank = -1 is negative"));
    EXPECT_THAT(said, HasSubstr("parameter 1 has 0 elements"));
}

TEST(BufferLayout, RefusesBuffersThatNoNumberHolds) {
    EXPECT_THAT(refusal(bf16({kMaxBufferNumel, 1}), {.dp = 1}), HasSubstr("the bf16 buffer would hold more than"));
    EXPECT_THAT(refusal(bf16({kMaxBufferNumel}), {.dp = 3}), HasSubstr("the bf16 buffer would hold more than"));
    EXPECT_THAT(refusal(std::vector<BufferParameter>(2'000'000, BufferParameter{.numel = 1, .shared_embedding = true}),
                        {.dp = kMaxBufferRanks - 1, .pad_buckets_for_high_nccl_busbw = true}),
                HasSubstr("the bf16 buffer would hold more than"));
    EXPECT_THAT(refusal(bf16({std::numeric_limits<std::int64_t>::max()}), {}), HasSubstr("parameter 0 has 9223372036854775807 elements"));
}

TEST(BucketSize, FollowsTheTrainingLoop) {
    EXPECT_EQ(default_bucket_size(8), 40'000'000);
    EXPECT_EQ(default_bucket_size(64), 64'000'000);
    EXPECT_EQ(resolve_bucket_size(std::nullopt, 7, 1'000'000'000, 8, true), 142'857'142);
    EXPECT_EQ(resolve_bucket_size(12'345, std::nullopt, 1'000'000'000, 8, true), 12'345);
    EXPECT_EQ(resolve_bucket_size(12'345, std::nullopt, 1'000'000'000, 8, false), std::nullopt);
}

/// What every layout promises, whatever the parameters.
TEST(BufferLayout, CoversEveryParameterOnceWithoutOverlap) {
    EXPECT_TRUE(rc::check([] {
        const auto count = *rc::gen::inRange<std::size_t>(1, 40);
        std::vector<BufferParameter> parameters;
        for (std::size_t i = 0; i < count; ++i) {
            parameters.push_back({.numel = *rc::gen::inRange<std::int64_t>(1, 2000),
                                  .dtype = *rc::gen::element(Dtype::bf16, Dtype::fp8, Dtype::fp32),
                                  .shared_embedding = *rc::gen::inRange(0, 8) == 0,
                                  .expert = *rc::gen::arbitrary<bool>()});
        }
        BufferOptions options{.dp = *rc::gen::inRange<std::int64_t>(1, 20), .edp = *rc::gen::inRange<std::int64_t>(1, 20)};
        if (*rc::gen::arbitrary<bool>()) options.bucket_size = *rc::gen::inRange<std::int64_t>(1, 5000);
        options.distributed_optimizer = *rc::gen::arbitrary<bool>();
        const auto layouts = lay_out_buffers(parameters, options);

        std::vector<int> seen(count, 0);
        std::size_t grouped = 0;
        std::size_t buckets = 0;
        for (const BufferLayout& buffer : layouts.buffers) {
            std::int64_t position = 0;
            for (const BufferSpan& span : buffer.spans) {
                const auto& parameter = parameters[static_cast<std::size_t>(span.parameter)];
                ++seen[static_cast<std::size_t>(span.parameter)];
                RC_ASSERT(span.start >= position);
                RC_ASSERT(span.end - span.start == parameter.numel);
                RC_ASSERT(parameter.expert == buffer.expert && parameter.dtype == buffer.param_dtype);
                const Bucket& bucket = buffer.buckets[static_cast<std::size_t>(span.bucket)];
                RC_ASSERT(bucket.start <= span.start && span.end <= bucket.end);
                if (options.distributed_optimizer) {
                    RC_ASSERT(span.start % 64 == 0);
                    if (parameter.shared_embedding) RC_ASSERT(bucket.end_span - bucket.first_span == 1);
                }
                position = span.end;
            }
            std::int64_t border = 0;
            for (const Bucket& bucket : buffer.buckets) {
                RC_ASSERT(bucket.start == border && bucket.end_span > bucket.first_span);
                if (options.distributed_optimizer) RC_ASSERT(bucket.end % buffer.dp == 0 && bucket.end % 128 == 0);
                border = bucket.end;
            }
            RC_ASSERT(border == buffer.numel);
            buckets += buffer.buckets.size();
        }
        RC_ASSERT(seen == std::vector<int>(count, 1));
        for (const auto& group : layouts.bucket_groups) grouped += group.size();
        for (const auto& group : layouts.expert_bucket_groups) grouped += group.size();
        RC_ASSERT(grouped == buckets);
    }));
}

TEST(UncutBuffer, HasTheSizeOfTheBufferLaidOut) {
    EXPECT_TRUE(rc::check("uncut_buffer_numel == lay_out_buffers", [] {
        const auto sizes = *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, 5000));
        RC_PRE(!sizes.empty());
        BufferOptions options;
        options.dp = *rc::gen::inRange<std::int64_t>(1, 200);
        options.distributed_optimizer = *rc::gen::arbitrary<bool>();
        options.pad_buckets_for_high_nccl_busbw = *rc::gen::arbitrary<bool>();
        const bool first_is_shared = *rc::gen::arbitrary<bool>(), last_is_shared = *rc::gen::arbitrary<bool>();
        std::vector<BufferParameter> list;
        std::vector<std::int64_t> alone;
        ParameterSums others;
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            const bool shared = (i == 0 && first_is_shared) || (i + 1 == sizes.size() && last_is_shared);
            list.push_back({.numel = sizes[i], .shared_embedding = shared});
            if (shared)
                alone.push_back(sizes[i]);
            else
                others.add(sizes[i]);
        }
        RC_ASSERT(uncut_buffer_numel(others, alone, options.dp, options) == lay_out_buffers(list, options).buffers[0].numel);
    }));
}

}  // namespace
}  // namespace mgplan::model::buffer_layout_test
