#include "plan/schedule/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"

namespace mgplan::schedule_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ScheduleRequest request_of(int pp, int vpp, std::int64_t microbatches, std::optional<std::int64_t> group = std::nullopt) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = microbatches;
    request.group_size = group;
    return request;
}

std::string message_of(const ScheduleRequest& request) {
    try {
        (void)Schedule(request);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "";
}

std::vector<int> order_of_rank(const RankSchedule& rank) {
    std::vector<int> order;
    for (const PipelineOp& op : rank.ops) order.push_back(signed_chunk(op));
    return order;
}

std::vector<int> microbatches_of(const RankSchedule& rank) {
    std::vector<int> microbatches;
    for (const PipelineOp& op : rank.ops) microbatches.push_back(op.microbatch);
    return microbatches;
}

/// Replays an order list; the counts at the first instant of the largest sum.
std::vector<std::int64_t> replayed_peak(const RankSchedule& rank, int vpp) {
    std::vector<std::int64_t> live(static_cast<std::size_t>(vpp), 0);
    std::vector<std::int64_t> at_peak;
    std::int64_t sum = 0;
    std::int64_t most = 0;
    for (const PipelineOp& op : rank.ops) {
        const int order = signed_chunk(op);
        live[static_cast<std::size_t>((order > 0 ? order : -order) - 1)] += order > 0 ? 1 : -1;
        sum += order > 0 ? 1 : -1;
        if (sum > most) {
            most = sum;
            at_peak = live;
        }
    }
    return at_peak;
}

TEST(Schedule, OneForwardOneBackwardWarmsUpByDistanceFromTheEnd) {
    const Schedule schedule(request_of(3, 1, 4));
    EXPECT_EQ(schedule.kind(), ScheduleKind::one_f_one_b);
    const RankSchedule first = schedule.rank(0);
    EXPECT_EQ(first.warmup, 2);
    EXPECT_THAT(order_of_rank(first), ElementsAre(1, 1, 1, -1, 1, -1, -1, -1));
    EXPECT_THAT(microbatches_of(first), ElementsAre(0, 1, 2, 0, 3, 1, 2, 3));
    EXPECT_EQ(first.peak_live, 3);
    EXPECT_THAT(order_of_rank(schedule.rank(2)), ElementsAre(1, -1, 1, -1, 1, -1, 1, -1));
}

TEST(Schedule, InterleavedWalksChunksInGroupsAndBackwardsInReverse) {
    // The example of Megatron-LM's docstring: 5 microbatches in groups of 3 on two chunks.
    const Schedule schedule(request_of(2, 2, 5, 3));
    using Entry = std::pair<std::int64_t, int>;
    EXPECT_THAT(schedule.table(), ElementsAre(Entry{0, 0}, Entry{1, 0}, Entry{2, 0}, Entry{0, 1}, Entry{1, 1}, Entry{2, 1}, Entry{3, 0},
                                              Entry{4, 0}, Entry{3, 1}, Entry{4, 1}));
    const RankSchedule last = schedule.rank(1);
    EXPECT_EQ(last.warmup, 3);
    const std::vector<int> order = order_of_rank(last);
    EXPECT_THAT(std::vector<int>(order.begin(), order.begin() + 6), ElementsAre(1, 1, 1, 2, -2, 2));
    EXPECT_THAT(last.live_per_chunk, ElementsAre(4, 2));
}

TEST(Schedule, PicksTheKindFromTheSizes) {
    EXPECT_EQ(Schedule(request_of(1, 1, 4)).kind(), ScheduleKind::none);
    EXPECT_EQ(Schedule(request_of(2, 1, 4)).kind(), ScheduleKind::one_f_one_b);
    EXPECT_EQ(Schedule(request_of(2, 3, 4)).kind(), ScheduleKind::interleaved);
    EXPECT_EQ(Schedule(request_of(2, 3, 4)).group_size(), 2);
}

TEST(Schedule, ForwardOnlyKeepsNothing) {
    ScheduleRequest request = request_of(2, 2, 4);
    request.forward_only = true;
    const RankSchedule rank = Schedule(request).rank(0);
    EXPECT_EQ(rank.warmup, 8);
    EXPECT_EQ(rank.ops.size(), 8U);
    EXPECT_EQ(rank.peak_live, 0);
}

TEST(Schedule, RefusesWhatTheRealScheduleRefuses) {
    EXPECT_THAT(message_of(request_of(4, 2, 8, 3)), HasSubstr("group size = 3 is below pp = 4; use 4 to 8"));
    EXPECT_THAT(message_of(request_of(4, 2, 8, 9)), HasSubstr("group size = 9 must lie between pp = 4 and microbatches = 8"));
    EXPECT_THAT(message_of(request_of(4, 2, 3)), HasSubstr("use at least 4 microbatches"));
    EXPECT_THAT(message_of(request_of(4, 2, 9)), HasSubstr("use 8 or 12 microbatches"));
    EXPECT_THAT(message_of(request_of(1, 2, 8)), HasSubstr("vpp = 2 needs a pipeline, but pp = 1"));
    ScheduleRequest request = request_of(2, 2, 4);
    request.kind = ScheduleKind::one_f_one_b;
    EXPECT_THAT(message_of(request), HasSubstr("use vpp = 1, or kind interleaved"));
    request = request_of(2, 1, 4);
    request.kind = ScheduleKind::interleaved;
    EXPECT_THAT(message_of(request), HasSubstr("needs several model chunks"));
    request.kind = ScheduleKind::none;
    EXPECT_THAT(message_of(request), HasSubstr("use pp = 1"));
}

TEST(Schedule, RefusesAbsurdSizes) {
    EXPECT_THAT(message_of(request_of(0, -1, 0, 0)), HasSubstr("pp = 0 is out of range"));
    EXPECT_THAT(message_of(request_of(0, -1, 0, 0)), HasSubstr("microbatches = 0"));
    EXPECT_THAT(message_of(request_of(2, 1, INT64_MAX)), HasSubstr("forwards and backwards a rank; use at most"));
    EXPECT_THAT(message_of(request_of(2, 40'000, 2)), HasSubstr("vpp = 40000 is out of range"));
}

TEST(Schedule, LiveAtPeakEqualsAReplayOfTheWholeList) {
    int compared = 0;
    for (int pp = 1; pp <= 6; ++pp) {
        for (int vpp = 1; vpp <= (pp == 1 ? 1 : 4); ++vpp) {
            for (std::int64_t microbatches = 1; microbatches <= 20; ++microbatches) {
                for (std::int64_t group = pp; group <= microbatches + 1; ++group) {
                    if (vpp > 1 && interleaved_refusal(pp, microbatches, group)) continue;
                    const Schedule schedule(request_of(pp, vpp, microbatches, group));
                    for (int rank = 0; rank < pp; ++rank) {
                        const RankSchedule list = schedule.rank(rank);
                        const auto live = live_at_peak(pp, vpp, microbatches, group, rank);
                        ASSERT_EQ(live, replayed_peak(list, vpp)) << pp << " " << vpp << " " << microbatches << " " << group << " " << rank;
                        ++compared;
                    }
                }
            }
        }
    }
    EXPECT_GT(compared, 5000);
}

TEST(Schedule, EveryListRunsEachPairForwardOnceThenBackwardOnce) {
    const Schedule schedule(request_of(4, 3, 11, 7));
    for (int r = 0; r < 4; ++r) {
        const RankSchedule rank = schedule.rank(r);
        std::vector<int> state(3 * 11, 0);
        for (std::size_t i = 0; i < rank.ops.size(); ++i) {
            const int order = signed_chunk(rank.ops[i]);
            const int chunk = (order > 0 ? order : -order) - 1;
            int& of_pair = state[static_cast<std::size_t>(chunk * 11 + rank.ops[i].microbatch)];
            ASSERT_EQ(of_pair, order > 0 ? 0 : 1);
            ++of_pair;
        }
        EXPECT_THAT(state, testing::Each(2));
    }
}

TEST(Schedule, LiveAtPeakNeedsNoWalkOverMicrobatches) {
    EXPECT_THAT(live_at_peak(1, 1, 1'000'000'000, 1, 0), ElementsAre(1));
    EXPECT_THAT(live_at_peak(4, 1, 1'000'000'000, 4, 1), ElementsAre(3));
    EXPECT_THAT(live_at_peak(4, 2, 1'000'000'000, 4, 0), ElementsAre(7, 4));
}

}  // namespace
}  // namespace mgplan::schedule_test
