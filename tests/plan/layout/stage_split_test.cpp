#include "plan/layout/stage_split.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"

namespace mgplan::stage_split_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

StageSplitRequest request_of(std::int64_t layers, int pp, int vpp = 1) {
    StageSplitRequest request;
    request.layers = layers;
    request.pp = pp;
    request.vpp = vpp;
    return request;
}

StageSplitRequest layout_of(std::int64_t layers, int pp, int vpp, std::string layout, std::int64_t mtp = 0) {
    StageSplitRequest request = request_of(layers, pp, vpp);
    request.pipeline_layout = std::move(layout);
    request.mtp_layers = mtp;
    return request;
}

std::string message_of(const StageSplitRequest& request) {
    try {
        (void)make_stage_split(request);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

std::vector<std::int64_t> decoders_of(const StageSplit& split) {
    std::vector<std::int64_t> decoders;
    for (int p = 0; p < split.pp(); ++p) decoders.push_back(split.decoders(p));
    return decoders;
}

TEST(StageSplit, EvenChunksFollowEachOtherAcrossThePipeline) {
    const StageSplit split = make_stage_split(request_of(16, 4, 2));
    EXPECT_EQ(split.kind(), SplitKind::even);
    EXPECT_EQ(split.chunk(1, 1), (StageChunk{false, 2, 10, 0, false}));
    EXPECT_TRUE(split.chunk(0, 0).embedding);
    EXPECT_TRUE(split.chunk(3, 1).loss);
    EXPECT_FALSE(split.chunk(3, 0).loss);
}

TEST(StageSplit, EmbeddingAndLossCountAsLayers) {
    StageSplitRequest request = request_of(30, 4, 2);
    request.account_for_embedding = request.account_for_loss = true;
    const StageSplit split = make_stage_split(request);
    EXPECT_EQ(split.chunk(0, 0).decoders, 3);
    EXPECT_EQ(split.chunk(3, 1).decoders, 3);
    EXPECT_EQ(split.chunk(1, 0).first_decoder, 3);
    EXPECT_EQ(split.chunk(2, 1).decoders, 4);
}

TEST(StageSplit, FirstAndLastStageMayDiffer) {
    StageSplitRequest request = request_of(20, 4, 2);
    request.first_stage_layers = request.last_stage_layers = 4;
    EXPECT_THAT(decoders_of(make_stage_split(request)), ElementsAre(4, 6, 6, 4));
    request = request_of(10, 2);
    request.first_stage_layers = 4;
    EXPECT_THAT(decoders_of(make_stage_split(request)), ElementsAre(4, 6));
}

TEST(StageSplit, LayoutStringsSayEverything) {
    const StageSplit split = make_stage_split(layout_of(61, 16, 0, "Et*3|(tt|)*29,m|L", 1));
    EXPECT_EQ(split.vpp(), 2);
    EXPECT_EQ(split.chunk(0, 0).decoders, 3);
    EXPECT_EQ(split.chunk(14, 1), (StageChunk{false, 0, 61, 1, false}));
    EXPECT_EQ(split.chunk(15, 1), (StageChunk{false, 0, 61, 0, true}));
    EXPECT_EQ(make_stage_split(split.request()), split);
    // A bar at the end is an empty last stage; the loss then sits on the stage before.
    EXPECT_TRUE(make_stage_split(layout_of(2, 4, 1, "Et|t|L|")).chunk(2, 0).loss);
}

TEST(StageSplit, RefusesWhatDoesNotDivide) {
    EXPECT_THAT(message_of(request_of(10, 4)), HasSubstr("layers = 10 do not split evenly over pp = 4; use pp = 1, 2, 5 or 10"));
    EXPECT_THAT(message_of(request_of(4, 8)), HasSubstr("8 stages, more than layers = 4; use at most 4 stages"));
    EXPECT_THAT(message_of(request_of(30, 3, 3)), HasSubstr("use vpp = 1, 2, 5 or 10"));
    EXPECT_THAT(message_of(request_of(8, 1, 2)), HasSubstr("vpp = 2 needs a pipeline"));
    StageSplitRequest request = request_of(60, 8);
    request.account_for_loss = true;
    EXPECT_THAT(message_of(request), HasSubstr("layers with loss = 61 do not split evenly over pp = 8"));
    request = request_of(13, 4);
    request.first_stage_layers = request.last_stage_layers = 2;
    EXPECT_THAT(message_of(request), HasSubstr("the 9 layers left by first and last stage do not split evenly over the other 2"));
    request = request_of(12, 4);
    request.first_stage_layers = request.last_stage_layers = 6;
    EXPECT_THAT(message_of(request), HasSubstr("leave 0 layers to 2 pipeline ranks"));
    request = request_of(14, 2);
    request.first_stage_layers = 16;
    EXPECT_THAT(message_of(request), HasSubstr("exceed layers = 14"));
    request = request_of(20, 4, 2);
    request.first_stage_layers = 3;
    EXPECT_THAT(message_of(request), HasSubstr("first stage layers = 3 do not split evenly into vpp = 2"));
}

TEST(StageSplit, RefusesLayoutsThatMissAStageOrALayer) {
    EXPECT_THAT(message_of(layout_of(7, 2, 0, "E|t*7|L")), HasSubstr("3 stages, no multiple of pp = 2"));
    EXPECT_THAT(message_of(layout_of(12, 4, 2, "Et|(t|)*10,tL")), HasSubstr("vpp = 3 with pp = 4, but vpp = 2"));
    EXPECT_THAT(message_of(layout_of(3, 2, 0, "Et|tL")), HasSubstr("2 decoder layers (t), but layers = 3"));
    EXPECT_THAT(message_of(layout_of(2, 2, 0, "Et|Lt")), HasSubstr("end with L"));
    EXPECT_THAT(message_of(layout_of(2, 2, 0, "t|tL")), HasSubstr("begin with E"));
    EXPECT_THAT(message_of(layout_of(6, 4, 0, "Ettt|ttt|m|mL", 2)), HasSubstr("put all into one"));
    EXPECT_THAT(message_of(layout_of(6, 2, 0, "Etttm|tttL", 1)), HasSubstr("behind all decoder layers"));
    EXPECT_THAT(message_of(layout_of(3, 2, 0, "Ett|tm||L", 1)), HasSubstr("use one of the last 2 stages"));
    EXPECT_THAT(message_of(layout_of(2, 2, 0, "Et|txL")), HasSubstr("    Et|txL\n        ^"));
    StageSplitRequest both = layout_of(2, 2, 0, "Et|tL");
    both.account_for_loss = true;
    EXPECT_THAT(message_of(both), HasSubstr("excludes counting embedding or loss as layers"));
    both.first_stage_layers = 1;
    EXPECT_THAT(message_of(both), HasSubstr("first or last stage layers exclude"));
}

TEST(StageSplit, RefusesAbsurdSizes) {
    EXPECT_THAT(message_of(request_of(1'000'000'000, 4)), HasSubstr("layers = 1000000000 is out of range; use 1 to 65536"));
    EXPECT_THAT(message_of(request_of(INT64_MAX, 0, -3)), HasSubstr("vpp = -3 is out of range"));
    EXPECT_THAT(message_of(request_of(8, 60'000, 60'000)), HasSubstr("pp·vpp"));
    EXPECT_EQ(automatic_stage_split(INT64_MAX, 0, 4, 1), std::nullopt);
    EXPECT_EQ(automatic_stage_split(8, 0, INT32_MAX, INT32_MAX), std::nullopt);
    EXPECT_EQ(automatic_stage_split(8, 0, 1, 2), std::nullopt);
}

TEST(AutomaticStageSplit, TakesTheFirstFormThatFits) {
    EXPECT_EQ(automatic_stage_split(32, 0, 4, 2)->kind(), SplitKind::even);
    const auto llama = automatic_stage_split(126, 0, 16, 1);
    EXPECT_EQ(llama->kind(), SplitKind::account_embedding_loss);
    EXPECT_EQ(llama->decoders(0), 7);
    const auto qwen = automatic_stage_split(94, 0, 5, 1);
    EXPECT_EQ(qwen->kind(), SplitKind::account_embedding_loss);
    EXPECT_TRUE(qwen->request().account_for_loss);
    EXPECT_FALSE(qwen->request().account_for_embedding);
    const auto deepseek = automatic_stage_split(61, 1, 16, 1);
    EXPECT_EQ(deepseek->kind(), SplitKind::first_last);
    EXPECT_EQ(deepseek->decoders(0), 3);
    EXPECT_EQ(deepseek->decoders(1), 4);
    EXPECT_EQ(deepseek->decoders(15), 2);
    EXPECT_EQ(deepseek->chunk(15, 0).mtp, 1);
    const auto chunks = automatic_stage_split(61, 1, 16, 2);
    EXPECT_EQ(chunks->request().pipeline_layout, "Et|t|(tt|)*29tmL");
    EXPECT_EQ(automatic_stage_split(5, 0, 8, 1), std::nullopt);
    // One layer less than stages is enough when the loss counts.
    EXPECT_EQ(automatic_stage_split(7, 0, 8, 1)->chunk(7, 0).decoders, 0);
}

TEST(AutomaticStageSplit, CoversEveryLayerOnceAndIsMadeAgainFromItsRequest) {
    for (std::int64_t layers = 1; layers <= 130; ++layers) {
        for (int pp = 1; pp <= 32; ++pp) {
            for (int vpp = 1; vpp <= 8; ++vpp) {
                const auto split = automatic_stage_split(layers, layers % 3, pp, vpp);
                const std::int64_t chunks = std::int64_t{pp} * vpp;
                if (!split) {
                    ASSERT_TRUE(layers < chunks || (pp == 1 && vpp > 1)) << layers << " " << pp << " " << vpp;
                    continue;
                }
                std::int64_t next = 0;
                std::int64_t least = layers;
                std::int64_t most = 0;
                for (int v = 0; v < vpp; ++v) {
                    for (int p = 0; p < pp; ++p) {
                        const auto& chunk = split->chunk(p, v);
                        ASSERT_EQ(chunk.first_decoder, next);
                        next += chunk.decoders;
                        least = std::min(least, chunk.decoders);
                        most = std::max(most, chunk.decoders);
                        ASSERT_EQ(chunk.embedding, p == 0 && v == 0);
                        const bool last = p == pp - 1 && v == vpp - 1;
                        ASSERT_EQ(chunk.loss, last);
                        ASSERT_EQ(chunk.mtp, last ? layers % 3 : 0);
                    }
                }
                ASSERT_EQ(next, layers);
                ASSERT_GE(least, layers < chunks ? 0 : split->kind() == SplitKind::account_embedding_loss ? 0 : 1);
                // No form makes the largest chunk larger than an even spread with embedding and loss as layers would.
                ASSERT_LE(most, (layers + 2 + chunks - 1) / chunks) << layers << " " << pp << " " << vpp;
                if (split->kind() == SplitKind::layout_string) {
                    ASSERT_LE(most - least, 1);
                }
                ASSERT_EQ(make_stage_split(split->request()), *split) << layers << " " << pp << " " << vpp;
            }
        }
    }
}

TEST(AutomaticStageSplit, SpreadsTheSmallChunksOverThePipelineRanks) {
    for (std::int64_t layers = 33; layers < 64; ++layers) {
        const auto split = automatic_stage_split(layers, 0, 8, 4);
        if (split->kind() != SplitKind::layout_string) continue;
        const auto decoders = decoders_of(*split);
        const auto [least, most] = std::minmax_element(decoders.begin(), decoders.end());
        EXPECT_LE(*most - *least, 1) << layers;
    }
}

}  // namespace
}  // namespace mgplan::stage_split_test
