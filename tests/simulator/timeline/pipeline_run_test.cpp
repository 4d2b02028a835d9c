// The event run on pipelines whose times are known: bubbles of the papers, transfers, reductions; and no order deadlocks.

#include "simulator/timeline/pipeline_run.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mgplan::simulator::pipeline_run_test {
namespace {

PipelineOrder megatron_order(int pp, int vpp, std::int64_t microbatches, std::optional<std::int64_t> group = std::nullopt) {
    ScheduleRequest request;
    request.pp = pp;
    request.vpp = vpp;
    request.microbatches = microbatches;
    request.group_size = group;
    return order_of(Schedule(request));
}

/// Every chunk of every rank takes the same.
PipelineTimes equal_times(const PipelineProgram& program, double forward, double input, double weight) {
    PipelineTimes times;
    times.passes.resize(program.slots());
    for (int r = 0; r < program.pp; ++r) {
        for (int c = 0; c < program.chunks; ++c) {
            times.passes[program.slot(r, c, Pass::forward)] = forward;
            times.passes[program.slot(r, c, Pass::backward)] = input + weight;
            times.passes[program.slot(r, c, Pass::input_gradient)] = input;
            times.passes[program.slot(r, c, Pass::weight_gradient)] = weight;
        }
    }
    return times;
}

/// The longest time from a rank's first pass to its last, less its passes: the papers' bubble, which leaves out that ranks
/// start one after the other.
double largest_bubble(const PipelineProgram& program, const PipelineTimes& times) {
    const PipelineRun run = run_pipeline(program, times, true);
    std::vector<double> first(static_cast<std::size_t>(program.pp), -1), last(first);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
        const auto rank = program.ops[i].rank;
        if (first[rank] < 0) first[rank] = run.begins[i];
        last[rank] = run.ends[i];
    }
    double most = 0;
    for (std::size_t r = 0; r < first.size(); ++r) most = std::max(most, last[r] - first[r] - run.busy[r]);
    return most;
}

std::int64_t largest_peak(const PipelineOrder& order) {
    std::int64_t most = 0;
    for (int r = 0; r < order.pp; ++r) most = std::max(most, peak_live(order, r));
    return most;
}

TEST(PipelineRun, OfEqualStagesHasExactlyTheBubbleOfThePaper) {
    // Narayanan et al., arXiv 2104.04473, section 2.2: (p - 1)/(v·m) of the ideal time. All times are whole numbers.
    for (const int pp : {1, 2, 3, 4, 8, 16}) {
        for (const int vpp : {1, 2, 4}) {
            if (pp == 1 && vpp > 1) continue;
            for (const std::int64_t rounds : {1, 2, 5}) {
                const std::int64_t m = rounds * pp;
                const PipelineProgram program = make_program(megatron_order(pp, vpp, m));
                ASSERT_EQ(program.deadlock, "");
                const double ideal = static_cast<double>(m * vpp) * 3;
                const double bubble = run_pipeline(program, equal_times(program, 1, 1, 1)).end - ideal;
                EXPECT_EQ(bubble * vpp * static_cast<double>(m), (pp - 1) * ideal) << pp << " " << vpp << " " << m;
            }
        }
    }
}

TEST(PipelineRun, ZeroBubbleH1HasAThirdOfTheBubbleInTheSameMemory) {
    // arXiv 2401.10241, table 1: (p - 1)(F + B - W), p microbatches.
    for (const int pp : {2, 3, 4, 8, 16}) {
        const PipelineOrder order = split_order({SplitSchedule::zb_h1, pp, 3 * pp});
        const PipelineProgram program = make_program(order);
        ASSERT_EQ(program.deadlock, "");
        EXPECT_EQ(largest_bubble(program, equal_times(program, 1, 1, 1)), pp - 1);
        EXPECT_EQ(largest_bubble(program, equal_times(program, 8, 9, 7)), (pp - 1) * 10);
        for (int r = 0; r < pp; ++r) EXPECT_EQ(peak_live(order, r), pp);
    }
}

TEST(PipelineRun, ZeroBubbleH2HasNone) {
    // The same table: (p - 1)(F + B - 2W), 2p - 1 microbatches.
    for (const int pp : {2, 3, 4, 8, 16}) {
        const PipelineOrder order = split_order({SplitSchedule::zb_h2, pp, 4 * pp});
        const PipelineProgram program = make_program(order);
        ASSERT_EQ(program.deadlock, "");
        EXPECT_EQ(largest_bubble(program, equal_times(program, 1, 1, 1)), 0) << pp;
        EXPECT_EQ(largest_bubble(program, equal_times(program, 8, 9, 7)), (pp - 1) * 3) << pp;
        EXPECT_EQ(largest_peak(order), 2 * pp - 1);
    }
}

TEST(PipelineRun, ZeroBubbleVHasNoneInTheMemoryOf1F1B) {
    // Section 6: p microbatches, here 2p chunks.
    for (const int pp : {2, 3, 4, 8, 16}) {
        const PipelineOrder order = split_order({SplitSchedule::zb_v, pp, 4 * pp});
        const PipelineProgram program = make_program(order);
        ASSERT_EQ(program.deadlock, "");
        EXPECT_EQ(largest_bubble(program, equal_times(program, 1, 1, 1)), 0) << pp;
        EXPECT_EQ(largest_peak(order), 2 * pp);
    }
}

TEST(PipelineRun, VHalfAndVMinTradeBubbleForMemory) {
    // arXiv 2405.15362, table 1 of its authors' page: activations of (p + 2)/2 and (p + 4)/3 microbatches, bubbles of about
    // p/2 and 2p/3 microbatches; a microbatch on a rank takes six here.
    for (const int pp : {4, 6, 8, 9, 16, 32}) {
        for (const SplitSchedule kind : {SplitSchedule::v_half, SplitSchedule::v_min}) {
            const PipelineOrder order = split_order({kind, pp, 4 * pp});
            const PipelineProgram program = make_program(order);
            ASSERT_EQ(program.deadlock, "");
            const bool half = kind == SplitSchedule::v_half;
            const std::int64_t microbatches = half ? (pp + 2) / 2 : (pp + 4) / 3;
            EXPECT_LE(largest_peak(order), 2 * microbatches) << to_string(kind) << " " << pp;
            EXPECT_GE(largest_peak(order), 2 * microbatches - 2) << to_string(kind) << " " << pp;
            const double bubble = largest_bubble(program, equal_times(program, 1, 1, 1));
            EXPECT_LE(bubble, 6.0 * (half ? pp / 2.0 : 2 * pp / 3.0)) << to_string(kind) << " " << pp;
        }
    }
}

TEST(PipelineRun, DualPipeVHasTheBubbleOfItsAuthors) {
    // README of deepseek-ai/DualPipe for PP = 2·pp stages: (PP/2 - 1)(F&B + B - 3W), where B is the whole backward and F&B
    // here the sum of both; PP + 1 chunks.
    for (const int pp : {2, 3, 4, 8, 16}) {
        const PipelineOrder order = split_order({SplitSchedule::dualpipe_v, pp, 4 * pp});
        const PipelineProgram program = make_program(order);
        ASSERT_EQ(program.deadlock, "");
        EXPECT_LE(largest_bubble(program, equal_times(program, 1, 1, 1)), (pp - 1) * (3 + 2 - 3)) << pp;
        EXPECT_EQ(largest_peak(order), 2 * pp + 1) << pp;
    }
}

TEST(PipelineRun, NoSplitOrderDeadlocksOrForgetsAPass) {
    int orders = 0;
    for (const auto& name : split_schedule_names()) {
        const SplitSchedule kind = *parse_split_schedule(name);
        for (int pp = 2; pp <= 12; ++pp) {
            for (const std::int64_t m : {1, 2, 3, pp, 2 * pp, 2 * pp + 1, 40}) {
                if (kind == SplitSchedule::dualpipe_v && m < 2 * pp) continue;
                const PipelineOrder order = split_order({kind, pp, m});
                const PipelineProgram program = make_program(order);
                ASSERT_EQ(program.deadlock, "") << name << " " << pp << " " << m;
                ASSERT_EQ(program.ops.size(), static_cast<std::size_t>(3 * m * pp * chunks_of(kind))) << name << " " << pp << " " << m;
                ++orders;
            }
        }
    }
    EXPECT_GT(orders, 400);
}

TEST(PipelineRun, ADeadlockNamesWhoWaits) {
    PipelineOrder order = megatron_order(2, 1, 2);
    std::swap(order.ranks[1][0], order.ranks[1][1]);  // backward in front of its forward
    EXPECT_THAT(make_program(order).deadlock, testing::HasSubstr("rank 1 waits in front of entry 0 (backward of chunk 0, microbatch 0)"));
}

TEST(PipelineRun, ATransferCostsTwoHopsAMicrobatchIn1F1B) {
    const PipelineProgram program = make_program(megatron_order(4, 1, 16));
    PipelineTimes times = equal_times(program, 1, 1, 1);
    const double free = run_pipeline(program, times).end;
    times.transfer = 0.125;
    // The first microbatch passes 2(p - 1) hops, every further one two; the last of them hides one.
    EXPECT_DOUBLE_EQ(run_pipeline(program, times).end - free, (2 * (16 + 4 - 2) - 1) * 0.125);
}

TEST(PipelineRun, OverlappedTransfersHideBehindOtherChunks) {
    const PipelineProgram program = make_program(megatron_order(4, 2, 16, 8));
    PipelineTimes times = equal_times(program, 1, 1, 1);
    const double free = run_pipeline(program, times).end;
    times.transfer = 0.125;
    const double blocking = run_pipeline(program, times).end;
    times.overlap_transfers = true;
    const double overlapped = run_pipeline(program, times).end;
    EXPECT_GT(overlapped, free);
    EXPECT_LT(overlapped - free, 0.5 * (blocking - free));
}

class DataParallelRun : public testing::Test {
protected:
    PipelineProgram program = make_program(megatron_order(2, 1, 4));
    PipelineTimes times = equal_times(program, 1, 1, 1);
    double passes = run_pipeline(program, times).end;
    DataParallelRun() {
        times.reduce = times.gather = {1, 1};
        times.buckets = {4, 1};
    }
};

TEST_F(DataParallelRun, WithoutOverlapFollowsTheLastPass) {
    EXPECT_DOUBLE_EQ(run_pipeline(program, times).end, passes + 1);
}

TEST_F(DataParallelRun, OverlappedLeavesTheLastBucketOfTheFirstRank) {
    times.overlap_reduce = true;
    const PipelineRun run = run_pipeline(program, times, true);
    EXPECT_DOUBLE_EQ(run.reduced[0], passes + 0.25);
    // The second rank, whose gradients are not cut, reduces while the first one still runs its last backward of two.
    EXPECT_DOUBLE_EQ(run.last_pass[1], passes - 2);
    EXPECT_DOUBLE_EQ(run.reduced[1], passes - 1);
    EXPECT_EQ(run.data_parallel.size(), 2U);
}

TEST_F(DataParallelRun, OverlappedGatherDelaysTheFirstForwardByABucket) {
    times.reduce = {0, 0};
    times.overlap_gather = true;
    // Rank 0: a bucket of 0.25, then a forward that ends a quarter of its own behind the last one; rank 1 gathers meanwhile.
    EXPECT_DOUBLE_EQ(run_pipeline(program, times).end, passes + 0.25);
    times.buckets = {1, 1};
    EXPECT_DOUBLE_EQ(run_pipeline(program, times).end, passes + 1);
}

TEST_F(DataParallelRun, HiddenCommunicationTakesItsShare) {
    times.overlap_reduce = true;
    const double free = run_pipeline(program, times).end;
    times.overlap_cost = 0.5;
    EXPECT_DOUBLE_EQ(run_pipeline(program, times).end, free + 0.5 * 0.75);
}

}  // namespace
}  // namespace mgplan::simulator::pipeline_run_test
