#include "simulator/memory/live_states.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace mgplan::simulator::live_states_test {
namespace {

struct Weights {
    std::vector<std::int64_t> kept, forward, backward;  ///< by chunk
};

/// Most bytes at any op of the whole schedule.
std::int64_t most_in(const RankSchedule& schedule, const Weights& weights) {
    std::vector<std::int64_t> live(weights.kept.size(), 0);
    std::int64_t bytes = 0, most = 0;
    for (const PipelineOp& entry : schedule.ops) {
        const int op = signed_chunk(entry);
        const auto chunk = static_cast<std::size_t>(std::abs(op) - 1);
        most = std::max(most, bytes + (op > 0 ? weights.forward[chunk] : weights.backward[chunk]));
        bytes += op > 0 ? weights.kept[chunk] : -weights.kept[chunk];
    }
    return most;
}

std::int64_t most_in(const std::vector<LiveState>& states, const Weights& weights) {
    std::int64_t most = 0;
    for (const LiveState& state : states) {
        const auto chunk = static_cast<std::size_t>(std::abs(state.op) - 1);
        std::int64_t bytes = state.op > 0 ? weights.forward[chunk] : weights.backward[chunk];
        for (std::size_t c = 0; c < state.live.size(); ++c) bytes += state.live[c] * weights.kept[c];
        most = std::max(most, bytes);
    }
    return most;
}

TEST(LiveStates, HoldTheFullestInstantWhateverTheChunksWeigh) {
    std::mt19937_64 random(7);
    const auto draw = [&](std::int64_t least, std::int64_t most) {
        return std::uniform_int_distribution<std::int64_t>(least, most)(random);
    };
    for (const auto& [pp, vpp, group] :
         {std::tuple{1, 1, 1}, {2, 1, 2}, {4, 1, 4}, {8, 1, 8}, {2, 2, 2}, {4, 2, 4}, {4, 3, 6}, {2, 4, 5}, {8, 2, 8}}) {
        for (const std::int64_t groups : {1, 2, 3, 5, 9, 40}) {
            for (const std::int64_t rest : {0, pp}) {
                ScheduleRequest request;
                request.pp = pp;
                request.vpp = vpp;
                request.microbatches = groups * group + rest;
                if (vpp > 1) request.group_size = group;
                const Schedule schedule(request);
                for (int rank = 0; rank < pp; ++rank) {
                    const RankSchedule list = schedule.rank(rank);
                    const auto states = live_states(pp, vpp, request.microbatches, group, rank);
                    for (int trial = 0; trial < 4; ++trial) {
                        Weights weights;
                        for (int c = 0; c < vpp; ++c) {
                            weights.kept.push_back(draw(0, 100));
                            weights.forward.push_back(weights.kept.back() + draw(0, 60));
                            weights.backward.push_back(draw(0, 160));
                        }
                        ASSERT_EQ(most_in(states, weights), most_in(list, weights))
                            << "pp " << pp << " vpp " << vpp << " group " << group << " microbatches " << request.microbatches << " rank "
                            << rank;
                    }
                }
            }
        }
    }
}

TEST(LiveStates, KnowTheMostOfAllChunksTogether) {
    for (const auto& [pp, vpp, group, microbatches] : {std::tuple{1, 1, 1, 5}, {4, 1, 4, 9}, {4, 2, 4, 8}, {2, 3, 4, 12}}) {
        for (int rank = 0; rank < pp; ++rank) {
            std::int64_t forward = 0, backward = 0;
            for (const LiveState& state : live_states(pp, vpp, microbatches, group, rank)) {
                const std::int64_t sum = std::accumulate(state.live.begin(), state.live.end(), std::int64_t{0});
                (state.op > 0 ? forward : backward) = std::max(state.op > 0 ? forward : backward, sum);
            }
            const MostLive most = most_live(pp, vpp, microbatches, group, rank);
            EXPECT_EQ(most.before_forward, forward) << pp << " " << vpp << " " << rank;
            EXPECT_EQ(most.before_backward, backward) << pp << " " << vpp << " " << rank;
        }
    }
}

TEST(LiveStates, OfVastPipelinesAreBounded) {
    const auto states = live_states(65536, 4, 1 << 20, 65536, 3);
    EXPECT_EQ(states.size(), 8U);
}

TEST(LiveStates, DoNotGrowWithTheMicrobatches) {
    EXPECT_EQ(live_states(4, 2, 4000, 4, 1).size(), live_states(4, 2, 40, 4, 1).size());
    EXPECT_EQ(live_states(4, 1, 1 << 20, 4, 0).size(), 2U) << "a forward and a backward";
}

}  // namespace
}  // namespace mgplan::simulator::live_states_test
