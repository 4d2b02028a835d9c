#include "simulator/memory/dispatcher_buffers.hpp"

#include <gtest/gtest.h>

namespace mgplan::simulator {
namespace {

constexpr GroupPath kRack{.ranks = 64, .ranks_per_domain = 64};
constexpr GroupPath kTwoNodes{.ranks = 16, .ranks_per_domain = 8};

TEST(DispatcherBuffers, OfHybridEpHoldAllTokensOfTheGroup) {
    // 64 ranks of 4,096 tokens: 7,168 values of two bytes, 256 probabilities and 56 scales of four.
    EXPECT_EQ(hybrid_ep_bytes(kRack, {.tokens = 4096, .hidden = 7168, .experts_per_rank = 4}), 262'144LL * (14'336 + 1024 + 224));
    EXPECT_EQ(hybrid_ep_bytes({}, {.tokens = 4096, .hidden = 7168, .experts_per_rank = 256}), 0);
}

TEST(DispatcherBuffers, OfHybridEpHoldWhatCrossesTheNetworkBesideThem) {
    // 16 ranks in two domains of 8 experts a rank: all tokens, the rank's own, and three times those that come from the other domain.
    const std::int64_t row = 2048, probabilities = 4 * 8 * 8, scales = 32;
    EXPECT_EQ(
        hybrid_ep_bytes(kTwoNodes, {.tokens = 100, .hidden = 1024, .experts_per_rank = 8}),
        1600 * (row + probabilities + scales) + 100 * (row + 2 * probabilities + scales) + 100 * (3 * (row + probabilities) + scales));
}

TEST(DispatcherBuffers, OfDeepEpDoNotGrowWithTheTokens) {
    const DispatcherBuffers few{.tokens = 1, .hidden = 7168}, many{.tokens = 1 << 20, .hidden = 7168};
    EXPECT_EQ(deep_ep_bytes(kTwoNodes, few), deep_ep_bytes(kTwoNodes, many));
    // Ten channels to eight peers of 288 rows each, and to two nodes of twice 128.
    const std::int64_t row = 14'336 + 8 + 128 * 16;
    EXPECT_EQ(deep_ep_bytes(kTwoNodes, few), 80 * (288 * row + 7 * 4) + 20 * 2 * (128 * (row + 16) + 18 * 4));
    EXPECT_EQ(deep_ep_bytes({.ranks = 8, .ranks_per_domain = 8}, {.tokens = 1, .hidden = 7168, .multiprocessors = 24}),
              96 * (256 * row + 5 * 4));
    EXPECT_EQ(deep_ep_bytes({}, few), 0);
}

}  // namespace
}  // namespace mgplan::simulator
