#include "runtime/comm/nccl/message_channels.hpp"

#include <gtest/gtest.h>

namespace mgplan::runtime::cuda::message_channels_test {
namespace {

TEST(MessageChannels, KeepWhatAMemberSendsApartFromWhatItReceivesInBothDirections) {
    for (int size = 2; size <= 65; ++size) {
        EXPECT_LE(message_channels(size), kMostChannels);
        for (int member = 0; member < size; ++member) {
            const int out = channel_of(member, size);
            EXPECT_GE(out, 0);
            EXPECT_LT(out, message_channels(size)) << member << " of " << size;
            // Activations come from the member before, gradients from the one behind.
            EXPECT_NE(out, channel_of((member + size - 1) % size, size)) << member << " of " << size;
            EXPECT_NE(out, channel_of((member + 1) % size, size)) << member << " of " << size;
        }
    }
}

TEST(MessageChannels, AreForThePipelinesGroupsAlone) {
    EXPECT_TRUE(is_pipeline("pp") && is_pipeline("pp-backward"));
    EXPECT_FALSE(is_pipeline("cp") || is_pipeline("tp-pp") || is_pipeline("embedding") || is_pipeline("world"));
    EXPECT_EQ(message_channels(1), 0);
}

}  // namespace
}  // namespace mgplan::runtime::cuda::message_channels_test
