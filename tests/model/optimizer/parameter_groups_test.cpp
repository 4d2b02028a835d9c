#include "tests/support/parameter_groups.hpp"

#include <gtest/gtest.h>

namespace mgplan::model::parameter_groups_test {
namespace {

Parameter parameter(std::int64_t elements, bool decays, bool expert = false) {
    Parameter result;
    result.shape = {elements};
    result.no_weight_decay = !decays;
    result.expert = expert;
    return result;
}

TEST(ParameterGroups, ShardsListTheLastParametersOfEachChunkFirst) {
    const std::vector<std::vector<Parameter>> chunks{{parameter(100, true), parameter(60, false), parameter(100, true)},
                                                     {parameter(64, true), parameter(64, false)}};
    BufferOptions options;
    options.dp = 2;
    std::vector<BufferLayouts> layouts;
    for (const auto& chunk : chunks) layouts.push_back(lay_out_buffers(buffer_parameters(chunk, Dtype::bf16), options));
    // Chunk 0: 0..100 of parameter 2, 128..188 of 1, 192..292 of 0, padded to 384, so 192 to a rank; chunk 1: 0..64 of 1,
    // 64..128 of 0, padded to 128.
    const auto first = tests::owned_pieces(chunks, layouts, 0, 0), second = tests::owned_pieces(chunks, layouts, 1, 0);
    ASSERT_EQ(first.size(), 4U);
    ASSERT_EQ(first[0].size(), 1U);
    EXPECT_EQ(first[0][0].range.parameter, 2);
    ASSERT_EQ(first[1].size(), 2U);
    EXPECT_EQ(first[1][0].chunk, 0);
    EXPECT_EQ(first[1][0].range.local, (ElementRange{128, 188}));
    EXPECT_EQ(first[1][1].chunk, 1);
    ASSERT_EQ(second[0].size(), 2U);
    EXPECT_EQ(second[0][0].range.parameter, 0);
    EXPECT_EQ(second[0][0].range.in_param, (ElementRange{0, 100}));
    EXPECT_EQ(second[0][1].chunk, 1);
    EXPECT_TRUE(second[1].empty());
}

}  // namespace
}  // namespace mgplan::model::parameter_groups_test
