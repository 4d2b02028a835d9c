#include "simulator/memory/op_profile.hpp"

#include <gtest/gtest.h>

namespace mgplan::simulator::op_profile_test {
namespace {

using enum model::MemoryCategory;

std::int64_t of(const BytesByCategory& bytes, model::MemoryCategory category) {
    return bytes[static_cast<std::size_t>(category)];
}

/// x stays, scratch comes and goes, y stays.
const std::vector<model::AllocationRecord> kForward = {
    {"x", activations, 10, 0, -1}, {"scratch", workspace, 100, 1, 3}, {"y", activations, 5, 2, -1}};

TEST(OpProfile, TellsPeakAndWhatStays) {
    const OpProfile profile = TraceProfiles(kForward).of(0, 4);
    EXPECT_EQ(profile.peak, 115);
    EXPECT_EQ(profile.peak_tensor, "y");
    EXPECT_EQ(of(profile.at_peak, activations), 15);
    EXPECT_EQ(of(profile.at_peak, workspace), 100);
    EXPECT_EQ(profile.net_total(), 15);
    EXPECT_EQ(of(profile.high_water, workspace), 100);
}

TEST(OpProfile, CountsWhatWasAliveBeforeAsReturned) {
    const OpProfile profile = TraceProfiles(kForward).of(2, 4);
    EXPECT_EQ(profile.peak, 5);
    EXPECT_EQ(profile.net_total(), 5 - 100);
    EXPECT_EQ(of(profile.high_water, workspace), 0);
}

TEST(OpProfile, OfTwoStretchesIsThatOfTheWhole) {
    for (std::int64_t cut = 0; cut <= 4; ++cut) {
        const OpProfile parts = then(TraceProfiles(kForward).of(0, cut), TraceProfiles(kForward).of(cut, 4));
        const OpProfile whole = TraceProfiles(kForward).of(0, 4);
        EXPECT_EQ(parts.peak, whole.peak) << cut;
        EXPECT_EQ(parts.at_peak, whole.at_peak) << cut;
        EXPECT_EQ(parts.high_water, whole.high_water) << cut;
        EXPECT_EQ(parts.net, whole.net) << cut;
    }
}

TEST(OpProfile, RepeatedIsTheChainOfItsTurns) {
    OpProfile grows = TraceProfiles(kForward).of(0, 4), shrinks = TraceProfiles(kForward).of(2, 4);
    for (const OpProfile& one : {grows, shrinks}) {
        OpProfile chain = one;
        for (std::int64_t times = 1; times <= 5; ++times) {
            const OpProfile fast = repeat(one, times);
            EXPECT_EQ(fast.peak, chain.peak) << times;
            EXPECT_EQ(fast.at_peak, chain.at_peak) << times;
            EXPECT_EQ(fast.high_water, chain.high_water) << times;
            EXPECT_EQ(fast.net, chain.net) << times;
            chain = then(chain, one);
        }
    }
}

}  // namespace
}  // namespace mgplan::simulator::op_profile_test
