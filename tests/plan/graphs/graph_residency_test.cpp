#include "plan/graphs/graph_residency.hpp"

#include <algorithm>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace mgplan::graph_residency_test {
namespace {

ScheduleRequest pipeline(int pp, int vpp, std::int64_t microbatches) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = microbatches;
    return request;
}

/// A legal schedule; remainders of a group included.
ScheduleRequest any_schedule() {
    const int pp = *rc::gen::inRange(1, 7);
    ScheduleRequest request = pipeline(pp, pp == 1 ? 1 : *rc::gen::inRange(1, 5), *rc::gen::inRange<std::int64_t>(1, 60));
    if (request.vpp > 1) {
        request.group_size = pp + *rc::gen::inRange<std::int64_t>(0, 4);
        request.microbatches = std::max(request.microbatches, *request.group_size);
        while (interleaved_refusal(pp, request.microbatches, *request.group_size)) ++request.microbatches;
    }
    return request;
}

RC_GTEST_PROP(GraphResidency, HoldsAsManyBuffersAndGraphsAsAreCounted, ()) {
    const ScheduleRequest request = any_schedule();
    const Schedule schedule(request);
    std::vector<GraphedChunk> chunks;
    std::vector<std::int64_t> layers;
    for (int c = 0; c < request.vpp; ++c) {
        layers.push_back(*rc::gen::inRange<std::int64_t>(0, 5));
        chunks.push_back({{0, layers.back()}});
    }
    for (const GraphPolicy policy : {GraphPolicy::slots, GraphPolicy::megatron}) {
        for (int rank = 0; rank < request.pp; ++rank) {
            const GraphResidency residency(request, rank, policy);
            const GraphCounts counts = count_graphs(schedule, rank, chunks, policy);
            RC_ASSERT(residency.held(layers) == counts.static_buffers);
            RC_ASSERT(residency.peak_live() == counts.peak_live_chunks);
            std::int64_t graphs = 0;
            for (int c = 0; c < request.vpp; ++c) graphs += residency.copies(c) * layers[static_cast<std::size_t>(c)];
            RC_ASSERT(graphs == counts.forward_graphs);
        }
    }
}

TEST(GraphResidency, OfEqualChunksIsThePeakTimesTheChunk) {
    const std::vector<std::int64_t> bytes(4, 1000);
    for (const GraphPolicy policy : {GraphPolicy::slots, GraphPolicy::megatron}) {
        const GraphResidency residency(pipeline(4, 4, 64), 1, policy);
        EXPECT_EQ(residency.held(bytes), 1000 * residency.peak_live());
    }
}

TEST(GraphResidency, OfSlotsDoesNotGrowWithTheMicrobatches) {
    for (int rank = 0; rank < 4; ++rank) {
        const GraphResidency few(pipeline(4, 2, 64), rank, GraphPolicy::slots);
        const GraphResidency many(pipeline(4, 2, 4096), rank, GraphPolicy::slots);
        EXPECT_EQ(few.held(std::vector<std::int64_t>{7, 3}), many.held(std::vector<std::int64_t>{7, 3}));
        EXPECT_EQ(few.copies(0), many.copies(0));
    }
    EXPECT_EQ(GraphResidency(pipeline(4, 2, 4096), 0, GraphPolicy::megatron).copies(0), 4096);
    EXPECT_EQ(GraphResidency(pipeline(1, 1, 4096), 0, GraphPolicy::megatron).copies(0), 1);
}

TEST(GraphResidency, OfTheLongestScheduleIsFoundWithoutWalkingAllOfIt) {
    // 2^24 microbatches of two chunks on 64 ranks: the whole would be 2^32 entries.
    const GraphResidency longest(pipeline(64, 2, std::int64_t{1} << 24), 0, GraphPolicy::slots);
    EXPECT_EQ(longest.held(std::vector<std::int64_t>{5, 5}), 5 * longest.peak_live());
}

}  // namespace
}  // namespace mgplan::graph_residency_test
