// The simulator's memory timeline against a whole meta run of the same plan, which the parity tests hold against the CPU's
// allocator: byte for byte, category by category.

#include "simulator/memory/rank_timeline.hpp"

#include <gtest/gtest.h>

#include "plan/training/data_sharding.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::simulator::rank_timeline_test {
namespace {

using model::MetaDevice;
using model::RankTrainer;
using model::TrainingTask;
namespace small = model::small;

struct Case {
    std::string name;
    small::Sizes sizes{};
    Recompute recompute = Recompute::none;
    EnumSet<RecomputeModule> modules{};
    RecomputeMethod method = RecomputeMethod::uniform;
    int recompute_layers = 1;
    int microbatches = 0;  ///< 0: as the batch says
    Precision precision = Precision::bf16;
    Fp8Recipe recipe = Fp8Recipe::tensorwise;
    std::optional<SplitSchedule> schedule{};
    OffloadSpec offload{};
    std::optional<DataSharding> sharding{};  ///< overlapped; on models with an output layer of their own
};

TrainingTask task_of(const ModelSpec& model, const Case& c) {
    TrainingTask task = small::task(model, c.sizes);
    task.training.precision = c.precision;
    task.training.megatron.fp8_recipe = c.recipe;
    task.training.offload = c.offload;
    if (c.sharding) {
        set_data_sharding({*c.sharding}, task.training);
        task.training.overlap_param_gather = true;
        task.model.tied_embeddings = false;
    }
    task.layout.recompute = c.recompute;
    task.layout.recompute_modules = c.modules;
    if (c.recompute == Recompute::full) {
        task.layout.recompute_method = c.method;
        task.layout.recompute_num_layers = c.recompute_layers;
    }
    if (c.schedule) {
        const bool v_shaped = is_v_shaped(*c.schedule);
        task.layout.schedule = c.schedule;
        task.layout.split = std::make_shared<const StageSplit>(
            automatic_stage_split(task.model.layers, 0, c.sizes.pp, chunks_of(*c.schedule), v_shaped).value());
        if (v_shaped) task.model.tied_embeddings = false;
    }
    if (c.microbatches > 0) {
        task.layout.num_microbatches = c.microbatches;
        task.batch.global_batch = c.microbatches * task.layout.micro_batch * c.sizes.dp;
    }
    return task;
}

void expect_equal_use(const model::MemoryUse& played, const model::MemoryUse& ran) {
    EXPECT_EQ(played.peak, ran.peak);
    for (int i = 0; i < model::kMemoryCategories; ++i) {
        const auto index = static_cast<std::size_t>(i);
        const auto name = to_string(static_cast<model::MemoryCategory>(i));
        EXPECT_EQ(played.high_water[index], ran.high_water[index]) << name;
        EXPECT_EQ(played.at_peak[index], ran.at_peak[index]) << name << " at the peak";
        EXPECT_EQ(played.current[index], ran.current[index]) << name << " at the end";
    }
}

class RankTimelineOf : public testing::TestWithParam<Case> {};

TEST_P(RankTimelineOf, IsWhatTheRuntimeHolds) {
    // 16 divides their shares.
    const int scale = quantised(GetParam().precision) ? 2 : 1;
    for (const ModelSpec& model : {tests::small_gpt(scale), tests::small_llama(scale)}) {
        const TrainingTask task = task_of(model, GetParam());
        for (int stage = 0; stage < static_cast<int>(task.layout.sizes.pp); ++stage) {
            const RankProbe probe = probe_rank(task, stage);
            for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) {
                MetaDevice device({.keep_allocations = false, .keep_ops = false});
                RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world)));
                if (trainer.schedule().rank != stage) continue;
                device.restart_high_water();
                (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0);
                const auto depth = model::send_depth(LayoutSchedule(task.layout), stage);
                SCOPED_TRACE(testing::Message() << model.name << " rank " << rank);
                expect_equal_use(play(probe, trainer.schedule(), depth, false).use, device.memory());
            }
        }
    }
}

std::vector<Case> cases() {
    using enum RecomputeModule;
    using enum SplitSchedule;
    return {
        {.name = "one"},
        {.name = "one_microbatch", .microbatches = 1},
        {.name = "fp32", .precision = Precision::fp32},
        {.name = "fp8", .precision = Precision::fp8},
        {.name = "fp8_tp2_sp_pp2",
         .sizes = {.tp = 2, .pp = 2, .sequence_parallel = true},
         .recompute = Recompute::selective,
         .modules = {mlp, layernorm},
         .precision = Precision::fp8},
        {.name = "fp8_delayed",
         .sizes = {.tp = 2, .dp = 2, .sequence_parallel = true},
         .precision = Precision::fp8,
         .recipe = Fp8Recipe::delayed},
        {.name = "fp8_full", .sizes = {.dp = 2}, .recompute = Recompute::full, .precision = Precision::fp8},
        {.name = "tp2_sp_dp2", .sizes = {.tp = 2, .dp = 2, .sequence_parallel = true}},
        {.name = "cp2", .sizes = {.cp = 2}},
        {.name = "pp2", .sizes = {.pp = 2}},
        {.name = "pp4_one_microbatch", .sizes = {.pp = 4}, .microbatches = 1},
        {.name = "pp4_dp2", .sizes = {.pp = 4, .dp = 2}},
        {.name = "pp2_vpp2", .sizes = {.pp = 2, .vpp = 2}},
        {.name = "pp2_vpp2_group4", .sizes = {.pp = 2, .vpp = 2, .group = 4}},
        {.name = "tp2_pp2_vpp2", .sizes = {.tp = 2, .pp = 2, .vpp = 2, .sequence_parallel = true}},
        {.name = "core", .sizes = {.pp = 2}, .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "mlp_norm", .sizes = {.pp = 2}, .recompute = Recompute::selective, .modules = {mlp, layernorm}},
        {.name = "full", .sizes = {.pp = 2}, .recompute = Recompute::full},
        {.name = "full2", .recompute = Recompute::full, .recompute_layers = 2},
        {.name = "zb_h1_pp4", .sizes = {.pp = 4}, .schedule = zb_h1},
        {.name = "zb_h1_tp2_pp2", .sizes = {.tp = 2, .pp = 2, .sequence_parallel = true}, .schedule = zb_h1},
        {.name = "zb_h1_core", .sizes = {.pp = 2}, .recompute = Recompute::selective, .modules = {core_attn}, .schedule = zb_h1},
        {.name = "zb_h1_full", .sizes = {.pp = 2}, .recompute = Recompute::full, .schedule = zb_h1},
        {.name = "zb_h2_pp4", .sizes = {.pp = 4}, .schedule = zb_h2},
        {.name = "zb_v_pp2", .sizes = {.pp = 2, .vpp = 2}, .schedule = zb_v},
        {.name = "zb_v_pp2_many", .sizes = {.pp = 2, .vpp = 2}, .microbatches = 20, .schedule = zb_v},
        {.name = "v_half_tp2_pp2", .sizes = {.tp = 2, .pp = 2, .vpp = 2, .sequence_parallel = true}, .schedule = v_half},
        {.name = "v_min_pp2_full", .sizes = {.pp = 2, .vpp = 2}, .recompute = Recompute::full, .schedule = v_min},
        {.name = "dualpipe_v_pp2", .sizes = {.pp = 2, .vpp = 2}, .schedule = dualpipe_v},
        {.name = "full_sharding_dp2", .sizes = {.dp = 2}, .sharding = DataSharding::full},
        {.name = "full_sharding_tp2_pp2_vpp2_dp2",
         .sizes = {.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sequence_parallel = true},
         .recompute = Recompute::full,
         .recompute_layers = 2,
         .sharding = DataSharding::full},
        {.name = "sharded_gradients_pp2_dp2", .sizes = {.pp = 2, .dp = 2}, .sharding = DataSharding::optimizer_gradients},
        {.name = "offloaded_pp2_dp2", .sizes = {.pp = 2, .dp = 2}, .offload = {.optimizer = 0.5, .modules = {OffloadModule::mlp_norm}}},
        {.name = "offloaded_zb_h1_pp4",
         .sizes = {.pp = 4},
         .schedule = zb_h1,
         .offload = {.modules = {OffloadModule::attn_norm, OffloadModule::core_attn}}},
        {.name = "block", .sizes = {.tp = 2}, .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 3},
    };
}

INSTANTIATE_TEST_SUITE_P(Layouts, RankTimelineOf, testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

TEST(RankTimeline, NamesTheOpAtThePeak) {
    const TrainingTask task = task_of(small::llama(), {.name = "", .sizes = {.pp = 2}});
    const RankProbe probe = probe_rank(task, 1);
    ScheduleRequest request;
    request.pp = 2;
    request.microbatches = task.layout.num_microbatches;
    const RankSchedule schedule = Schedule(request).rank(1);
    const RankTimeline timeline = play(probe, schedule, {}, true);
    ASSERT_EQ(timeline.ops.size(), schedule.ops.size());
    std::int64_t most = 0;
    for (const TimelineOp& op : timeline.ops) most = std::max(most, op.peak);
    EXPECT_EQ(most, timeline.use.peak);
    EXPECT_EQ(timeline.ops[static_cast<std::size_t>(timeline.peak_op)].peak, timeline.use.peak);
    EXPECT_EQ(schedule.ops[static_cast<std::size_t>(timeline.peak_op)].chunk, 0);
}

}  // namespace
}  // namespace mgplan::simulator::rank_timeline_test
