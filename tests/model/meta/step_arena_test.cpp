#include "model/meta/step_arena.hpp"

#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/training/rank_trainer.hpp"
#include "tests/model/meta/arena_soundness.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::model::step_arena_test {
namespace {

struct Traced {
    std::vector<AllocationRecord> records;
    std::vector<RangeRecord> ranges;
};

Traced trace(const TrainingTask& task, int rank) {
    MetaDevice device({.keep_allocations = true, .keep_ops = false});
    RankTrainer trainer(task, device, recording_world(rank, static_cast<int>(task.layout.sizes.world)));
    (void)trainer.step({}, 0);
    return {device.allocations(), device.ranges()};
}

TrainingTask with_microbatches(TrainingTask task, std::int64_t microbatches) {
    task.layout.num_microbatches = microbatches;
    task.batch.global_batch = microbatches * task.layout.micro_batch * task.layout.dp();
    return task;
}

TEST(StepArena, IsSoundOnEveryRankOfEveryLayout) {
    for (const ModelSpec& model : {small::gpt(), small::llama()}) {
        for (const small::Sizes& sizes : std::vector<small::Sizes>{{},
                                                                   {.tp = 2, .dp = 2, .sequence_parallel = true},
                                                                   {.cp = 2},
                                                                   {.pp = 2},
                                                                   {.pp = 4},
                                                                   {.pp = 2, .vpp = 2},
                                                                   {.pp = 2, .vpp = 2, .group = 4}}) {
            for (const Recompute recompute : {Recompute::none, Recompute::full}) {
                TrainingTask task = small::task(model, sizes);
                task.layout.recompute = recompute;
                if (recompute == Recompute::full) {
                    task.layout.recompute_method = RecomputeMethod::uniform;
                    task.layout.recompute_num_layers = 1;
                }
                for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) {
                    const Traced traced = trace(task, rank);
                    for (const std::int64_t alignment : {1, 256}) {
                        const StepArena arena = plan_step(traced.records, traced.ranges, {}, alignment);
                        ASSERT_EQ(fault_of(traced.records, arena, {}, alignment), "") << model.name << " rank " << rank;
                        if (alignment == 1) {
                            EXPECT_LE(arena.waste(), 0.1) << model.name << " rank " << rank;
                        }
                    }
                }
            }
        }
    }
}

TEST(StepArena, DoesNotGrowWithTheNumberOfMicrobatches) {
    for (const small::Sizes& sizes : std::vector<small::Sizes>{{}, {.pp = 4}, {.pp = 2, .vpp = 2}}) {
        const TrainingTask task = small::task(small::llama(), sizes);
        const Traced few = trace(with_microbatches(task, 8), 0), many = trace(with_microbatches(task, 40), 0);
        const StepArena of_few = plan_step(few.records, few.ranges), of_many = plan_step(many.records, many.ranges);
        EXPECT_GT(many.records.size(), 4 * few.records.size());
        EXPECT_EQ(of_few.total, of_many.total) << sizes.pp;
        EXPECT_EQ(of_few.slot_count, of_many.slot_count);
    }
}

TEST(StepArena, HasAsManySlotsAsMicrobatchesLiveAtOnce) {
    for (int stage = 0; stage < 4; ++stage) {
        const Traced traced = trace(small::task(small::llama(), {.pp = 4}), stage);
        EXPECT_EQ(plan_step(traced.records, traced.ranges).slot_count, 4 - stage);
    }
}

// What a captured graph needs: the same chunk in the same slot works at the same addresses.
TEST(StepArena, GivesAPassInASlotTheSameAddressesAgain) {
    const Traced traced = trace(with_microbatches(small::task(small::llama(), {.pp = 4}), 24), 0);
    const StepArena arena = plan_step(traced.records, traced.ranges, {}, 1);
    std::set<std::vector<std::int64_t>> forwards;
    for (const RangeRecord& range : traced.ranges) {
        if (range.name != "chunk forward") continue;
        std::vector<std::int64_t> offsets;
        for (std::size_t i = 0; i < traced.records.size(); ++i) {
            const AllocationRecord& record = traced.records[i];
            if (record.taken < range.begin || record.taken >= range.end) continue;
            const bool carried = record.returned >= range.end && record.name == "residual stream";
            if (!carried) offsets.push_back(arena.offsets[i]);
        }
        forwards.insert(offsets);
    }
    EXPECT_EQ(std::ssize(forwards), arena.slot_count);
}

TEST(StepArena, LeavesOutWhatItIsToldTo) {
    const Traced traced = trace(small::task(small::llama(), {.pp = 2}), 0);
    std::vector<bool> left_out(traced.records.size());
    for (std::size_t i = 0; i < left_out.size(); ++i) left_out[i] = traced.records[i].name == "attention output";
    const StepArena all = plan_step(traced.records, traced.ranges), some = plan_step(traced.records, traced.ranges, left_out);
    EXPECT_EQ(fault_of(traced.records, some, left_out, 256), "");
    EXPECT_LT(some.total, all.total);
    EXPECT_LT(some.lower_bound, all.lower_bound);
}

TEST(StepArena, OfNothingIsEmpty) {
    const StepArena arena = plan_step({}, {});
    EXPECT_EQ(arena.total, 0);
    EXPECT_EQ(arena.waste(), 0);
}

// Passes of any chunks in any order, with or without partners, and tensors that live through as many of them as they like.
RC_GTEST_PROP(StepArenaOfAnyTrace, IsSound, ()) {
    std::vector<AllocationRecord> records;
    std::vector<RangeRecord> ranges;
    std::vector<std::size_t> open;  // indices of living tensors
    std::int64_t clock = 0;
    const auto work = [&](int changes) {
        for (int i = 0; i < changes; ++i) {
            if (!open.empty() && *rc::gen::inRange(0, 5) < 2) {
                const auto which = static_cast<std::size_t>(*rc::gen::inRange<std::size_t>(0, open.size()));
                records[open[which]].returned = clock++;
                open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
            } else {
                open.push_back(records.size());
                records.push_back({"any", MemoryCategory::activations, *rc::gen::inRange<std::int64_t>(1, 3000), clock++});
            }
        }
    };
    const auto passes = *rc::gen::inRange(0, 12);
    for (int pass = 0; pass < passes; ++pass) {
        work(*rc::gen::inRange(0, 3));
        RangeRecord range{*rc::gen::arbitrary<bool>() ? "chunk forward" : "chunk backward", *rc::gen::inRange(0, 2), clock};
        const auto layers = *rc::gen::inRange(0, 3);
        const std::size_t own = ranges.size();
        ranges.push_back(range);
        for (int layer = 0; layer < layers; ++layer) {
            RangeRecord inner{"layer forward", layer, clock, -1, 1};
            work(*rc::gen::inRange(0, 6));
            inner.end = clock;
            ranges.push_back(inner);
            work(*rc::gen::inRange(0, 2));
        }
        ranges[own].end = clock;
    }
    work(*rc::gen::inRange(0, 6));
    std::vector<bool> left_out(records.size());
    for (std::size_t i = 0; i < left_out.size(); ++i) left_out[i] = *rc::gen::inRange(0, 8) == 0;
    const std::int64_t alignment = std::int64_t{1} << *rc::gen::inRange(0, 9);
    const StepArena arena = plan_step(records, ranges, left_out, alignment);
    const std::string fault = fault_of(records, arena, left_out, alignment);
    if (!fault.empty()) RC_FAIL(fault);
}

}  // namespace
}  // namespace mgplan::model::step_arena_test
