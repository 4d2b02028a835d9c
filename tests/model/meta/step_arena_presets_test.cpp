// The arena's promise: at most 3 % over the most bytes alive at once, on plans of the presets.

#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/step_arena.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "tests/model/meta/arena_soundness.hpp"

namespace mgplan::model::step_arena_presets_test {
namespace {

struct Case {
    std::string name;
    std::string preset;
    std::int64_t world, tp, cp, ep, pp;
    int vpp;
    std::int64_t micro_batch = 1;
    Recompute recompute = Recompute::none;
};

/// The preset without what the layers do not compute: it has hardly a part in memory.
TrainingTask task_of(const Case& which) {
    TrainingTask task;
    task.model = formats::load_model(which.preset).model;
    task.model.mtp_layers = 0;
    task.model.rotary_scaling.clear();
    if (task.model.moe) {
        task.model.moe->expert_bias = false;
        task.model.moe->groups = task.model.moe->group_top_k = 0;
    }
    Layout& layout = task.layout;
    layout.sizes = {which.world, which.tp, which.cp, which.ep, which.ep > 1 ? 1 : which.tp, which.pp, AxisOrder{}, 1};
    layout.vpp = which.vpp;
    layout.group_size = which.pp;
    layout.micro_batch = which.micro_batch;
    layout.num_microbatches = 2 * which.pp + 2;  // as many as fill the pipeline, and some
    if (which.vpp > 1) layout.num_microbatches = 3 * which.pp;
    layout.sequence_parallel = which.tp > 1;
    layout.recompute = which.recompute;
    if (which.recompute == Recompute::full) {
        layout.recompute_method = RecomputeMethod::uniform;
        layout.recompute_num_layers = 1;
    }
    layout.split =
        std::make_shared<const StageSplit>(automatic_stage_split(task.model.layers, 0, static_cast<int>(which.pp), which.vpp).value());
    task.batch = {layout.num_microbatches * layout.micro_batch * layout.dp(), std::min<std::int64_t>(task.model.max_positions, 4096)};
    return task;
}

class StepArenaOfPresets : public testing::TestWithParam<Case> {};

TEST_P(StepArenaOfPresets, WastesAtMostThreePercent) {
    const TrainingTask task = task_of(GetParam());
    const ParallelSizes& sizes = task.layout.sizes;
    for (const std::int64_t stage : std::set<std::int64_t>{0, sizes.pp / 2, sizes.pp - 1}) {
        MetaDevice device({.keep_allocations = true, .keep_ops = false});
        RankTrainer trainer(task, device,
                            recording_world(static_cast<int>(first_rank_of_stage(sizes, stage)), static_cast<int>(sizes.world)));
        (void)trainer.step({}, 0);
        const StepArena arena = plan_step(device.allocations(), device.ranges());
        EXPECT_EQ(fault_of(device.allocations(), arena, {}, 256), "") << "stage " << stage;
        EXPECT_LE(arena.waste(), 0.03) << "stage " << stage;
    }
}

/// Layouts as `mgplan plan` puts them first, on 8 to 1,024 GPUs, and some that are harder: chunks of unlike sizes, a loss
/// among many chunks, recompute.
INSTANTIATE_TEST_SUITE_P(
    Plans, StepArenaOfPresets,
    testing::Values(
        Case{"gpt3_175b", "gpt3-175b", 64, 8, 1, 1, 8, 1}, Case{"llama3_8b", "llama3-8b", 16, 1, 1, 1, 1, 1},
        Case{"llama2_13b", "llama2-13b", 64, 1, 1, 1, 2, 8}, Case{"llama3_70b", "llama3-70b", 64, 4, 1, 1, 4, 7},
        Case{"llama31_405b", "llama3.1-405b", 1024, 4, 2, 1, 16, 8}, Case{"llama32_1b_loss", "llama3.2-1b", 4, 1, 1, 1, 2, 8, 8},
        Case{"qwen3_06b", "qwen3-0.6b", 32, 1, 1, 1, 2, 8, 8}, Case{"sc21_76b", "sc21-gpt-76b", 64, 2, 1, 1, 16, 3, 2},
        Case{"qwen3_235b_full", "qwen3-235b-a22b", 64, 1, 1, 8, 8, 8, 2, Recompute::full},
        Case{"kimi_k2_full", "kimi-k2", 256, 1, 2, 8, 32, 1, 1, Recompute::full}, Case{"deepseek_v2", "deepseek-v2", 1024, 2, 1, 8, 16, 3},
        Case{"deepseek_v2_lite", "deepseek-v2-lite", 32, 1, 1, 8, 2, 8, 4}, Case{"mixtral_8x22b", "mixtral-8x22b", 64, 1, 2, 8, 8, 7},
        Case{"tiny_llama", "tiny-llama", 4, 2, 1, 1, 2, 2, 16}, Case{"tiny_gpt_full", "tiny-gpt", 4, 1, 1, 1, 4, 1, 16, Recompute::full},
        Case{"tiny_moe", "tiny-moe", 32, 1, 1, 1, 2, 1, 2}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mgplan::model::step_arena_presets_test
