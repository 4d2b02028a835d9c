// Training at planned offsets: the same losses as with a pool, and as much memory as was predicted.

#include <memory>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/data/synthetic_stream.hpp"
#include "runtime/training_run/rank_arena.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::runtime::arena_run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Case {
    std::string name;
    std::int64_t tp = 1, pp = 1, dp = 1, ep = 1, cp = 1;
    int vpp = 1;
    bool experts = false;
    double capacity = 0;  ///< 0: dropless
    bool padded = false;
    Recompute recompute = Recompute::none;
    Precision precision = Precision::fp32;
    std::optional<SplitSchedule> schedule = {};
};

TrainingRunOptions run_of(const Case& which) {
    TrainingRunOptions run;
    ModelSpec& model = run.task.model;
    model = tests::byte_llama(4);
    if (which.experts) {
        MoeSpec& moe = tests::add_experts(model, 1);
        moe.auxiliary_loss = 0.01;
        if (which.capacity > 0) moe.capacity_factor = which.capacity;
        moe.pad_to_capacity = which.padded;
    }
    run.task.training.precision = which.precision;
    Layout& layout = run.task.layout;
    layout.sizes = {
        which.tp * which.cp * which.pp * which.dp, which.tp, which.cp, which.ep, which.experts ? 1 : which.tp, which.pp, AxisOrder{}, 1};
    layout.vpp = which.vpp;
    layout.group_size = which.pp;
    layout.num_microbatches = 6;
    layout.sequence_parallel = which.tp > 1;
    layout.recompute = which.recompute;
    if (which.recompute == Recompute::full) {
        layout.recompute_method = RecomputeMethod::uniform;
        layout.recompute_num_layers = 1;
    }
    run.task.batch = {6 * which.dp, 16};
    layout.schedule = which.schedule;
    layout.split = std::make_shared<const StageSplit>(
        automatic_stage_split(model.layers, 0, static_cast<int>(which.pp), which.vpp, which.schedule && which.vpp == 2).value());
    run.steps = 3;
    run.learning_rate.maximum = 1e-2;
    run.data = std::make_shared<Sequences>(std::make_shared<SyntheticStream>(1, 256), 16, run.task.batch.global_batch, 1);
    return run;
}

class ArenaRun : public testing::TestWithParam<Case> {};

TEST_P(ArenaRun, GivesTheBitsOfAPoolRunAndTheBytesOfItsPrediction) {
    TrainingRunOptions run = run_of(GetParam());
    const RunValues pool = run_in_process(run);
    run.memory = MemoryMode::arena;
    const RunValues arena = run_in_process(run);
    ASSERT_EQ(arena.steps.size(), pool.steps.size());
    for (std::size_t i = 0; i < pool.steps.size(); ++i) {
        EXPECT_EQ(arena.steps[i].loss, pool.steps[i].loss) << i;
        EXPECT_EQ(arena.steps[i].grad_norm, pool.steps[i].grad_norm) << i;
    }
    EXPECT_TRUE(pool.as_predicted);
    EXPECT_TRUE(arena.as_predicted);
    const bool of_values = GetParam().experts && !GetParam().padded && GetParam().ep > 1;
    for (std::size_t rank = 0; rank < arena.ranks.size(); ++rank) {
        const RankValues& values = arena.ranks[rank];
        const MemoryValues &a = values.measured.memory, &b = pool.ranks[rank].measured.memory;
        EXPECT_EQ(values.measured, values.predicted) << rank;
        EXPECT_EQ(a.arena_bytes, values.arena.planned_bytes) << rank;
        EXPECT_EQ(a.reserved_bytes, a.arena_bytes + a.fallback_bytes) << rank;
        EXPECT_EQ(a.fallback_bytes > 0, of_values) << rank;
        // The same tensors, whatever holds them.
        EXPECT_EQ(a.peak_bytes, b.peak_bytes) << rank;
        EXPECT_EQ(a.high_water, b.high_water) << rank;
        if (!of_values) {
            EXPECT_EQ(values.arena.lower_bound_bytes, a.peak_bytes) << rank;
        }
        EXPECT_GE(values.arena.planned_bytes, values.arena.lower_bound_bytes) << rank;
        EXPECT_EQ(b.arena_bytes, 0) << rank;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ArenaRun,
    testing::Values(Case{.name = "one"}, Case{.name = "bf16", .precision = Precision::bf16}, Case{.name = "dp2", .dp = 2},
                    Case{.name = "tp2_pp2", .tp = 2, .pp = 2}, Case{.name = "cp2", .cp = 2}, Case{.name = "pp4", .pp = 4},
                    Case{.name = "pp2_vpp2_dp2", .pp = 2, .dp = 2, .vpp = 2},
                    Case{.name = "zb_h1_pp2", .pp = 2, .schedule = SplitSchedule::zb_h1},
                    Case{.name = "zb_v_pp2", .pp = 2, .vpp = 2, .schedule = SplitSchedule::zb_v},
                    Case{.name = "pp2_full", .pp = 2, .recompute = Recompute::full}, Case{.name = "experts", .experts = true},
                    Case{.name = "experts_ep2_pp2", .pp = 2, .dp = 2, .ep = 2, .experts = true},
                    Case{.name = "experts_ep2_padded", .dp = 2, .ep = 2, .experts = true, .capacity = 1.5, .padded = true}),
    [](const auto& test) { return test.param.name; });

TEST(ArenaRunWithCapacity, IsAsPredictedWhereCopiesAreDropped) {
    TrainingRunOptions run = run_of({.name = "", .dp = 2, .ep = 2, .experts = true, .capacity = 1});
    const RunValues pool = run_in_process(run);
    run.memory = MemoryMode::arena;
    const RunValues arena = run_in_process(run);
    EXPECT_TRUE(arena.as_predicted);
    EXPECT_EQ(arena.steps.back().loss, pool.steps.back().loss);
    for (const RankValues& rank : arena.ranks) EXPECT_GT(rank.measured.memory.fallback_bytes, 0);
}

TEST(ArenaRun, GoesOnBehindAStepThatIsLeftOut) {
    TrainingRunOptions run = run_of({.name = "", .pp = 2, .dp = 2});
    run.memory = MemoryMode::arena;
    run.learning_rate.maximum = 1e30;  // the first update makes the parameters useless
    run.skip_non_finite = true;
    const RunValues values = run_in_process(run);
    ASSERT_EQ(values.steps.size(), 3U);
    EXPECT_TRUE(values.steps.back().skipped);
    EXPECT_TRUE(values.as_predicted);
}

/// Allocates something in the middle of the second step.
class Intruder final : public RankObserver {
public:
    void on_ready(model::Device& device, const model::World& /*world*/) override { device_ = &device; }
    void on_op(const model::OpRecord& /*record*/) override {
        if (device_ == nullptr || ++ops_ != 40) return;
        static_cast<void>(device_->empty({7}, Dtype::fp32, model::MemoryCategory::workspace, "an intruder"));
    }
    void on_collective(const model::CollectiveRecord& /*record*/) override {}

private:
    model::Device* device_ = nullptr;
    int ops_ = 0;
};

TEST(ArenaRun, StopsAtAnAllocationThatIsNotPlanned) {
    TrainingRunOptions run = run_of({.name = "", .dp = 2});
    run.memory = MemoryMode::arena;
    run.observe = [](int rank) -> std::unique_ptr<RankObserver> { return rank == 1 ? std::make_unique<Intruder>() : nullptr; };
    try {
        static_cast<void>(run_in_process(run));
        FAIL() << "nothing thrown";
    } catch (const RunError& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("rank 1"), HasSubstr("\"an intruder\" (workspace, 28 bytes)"), HasSubstr("--memory pool")));
    }
}

TEST(RankArena, PlacesEverythingWhoseSizeIsKnown) {
    const auto elsewhere = [](const Case& which) {
        const ArenaScript script = arena_script(run_of(which).task, 0, CpuDevice::kernel_traits());
        std::set<std::string_view> names;
        for (const ArenaTake& take : script.step) {
            if (take.offset == ArenaTake::kElsewhere) names.insert(take.name);
        }
        for (const ArenaTake& take : script.construction) EXPECT_NE(take.offset, ArenaTake::kElsewhere) << take.name;
        return names;
    };
    EXPECT_THAT(elsewhere({.name = "", .dp = 2}), testing::IsEmpty());
    EXPECT_THAT(elsewhere({.name = "", .experts = true}), testing::IsEmpty()) << "all copies stay: their sum is known";
    EXPECT_THAT(elsewhere({.name = "", .dp = 2, .ep = 2, .experts = true, .capacity = 1.5, .padded = true}), testing::IsEmpty());
    const auto dropless = elsewhere({.name = "", .dp = 2, .ep = 2, .experts = true});
    EXPECT_THAT(dropless, AllOf(testing::Contains("expert first product"), testing::Contains("dispatched rows")));
    EXPECT_THAT(dropless, testing::Not(testing::Contains("norm output")));
}

}  // namespace
}  // namespace mgplan::runtime::arena_run_test
