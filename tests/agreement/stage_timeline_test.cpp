// Timelines of a layout's stages against whole meta runs of their first ranks, and what every op of them says.

#include "simulator/memory/stage_timeline.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "simulator/cost_model.hpp"
#include "simulator/memory/activation_memory.hpp"
#include "simulator/memory/model_state.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::simulator::stage_timeline_test {
namespace {

using model::MetaDevice;
using model::RankTrainer;
using model::TrainingTask;
namespace small = model::small;

std::int64_t sum(const BytesByCategory& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

TrainingTask bf16_task(const ModelSpec& model, const small::Sizes& sizes, int microbatches) {
    TrainingTask task = small::task(model, sizes);
    task.training.precision = Precision::bf16;
    task.balanced_routing = true;
    task.layout.num_microbatches = microbatches;
    task.batch.global_batch = microbatches * sizes.dp;
    return task;
}

Workload workload_of(const TrainingTask& task) {
    Workload work;
    work.model = task.model;
    work.batch = task.batch;
    work.training = task.training;
    work.world = task.layout.sizes.world;
    return work;
}

ModelSpec mixture() {
    ModelSpec model = small::llama();
    model.name = "small-mixture";
    model.moe = MoeSpec{.experts = 8, .top_k = 2, .expert_ffn = 24, .shared_ffn = 16, .auxiliary_loss = 0.02};
    model.moe_layers = {false, true, true, true};
    return model;
}

/// A whole step of the stage's first rank.
model::MemoryUse run_of(const TrainingTask& task, int stage, const model::KernelTraits& stands_for, std::int64_t* host = nullptr) {
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) {
        MetaDevice device({.keep_allocations = false, .keep_ops = false, .stands_for = stands_for});
        RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world)));
        if (trainer.schedule().rank != stage) continue;
        device.restart_high_water();
        (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 0);
        if (host != nullptr) *host = device.host_peak();
        return device.memory();
    }
    return {};
}

TEST(StageTimelines, AreWhatEachStagesFirstRankHolds) {
    const std::vector<small::Sizes> layouts{{.dp = 2}, {.pp = 4}, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sequence_parallel = true}};
    for (const ModelSpec& model : {small::gpt(), small::llama(), mixture()}) {
        for (const auto& sizes : layouts) {
            for (const auto kind : {model::DeviceKind::cpu, model::DeviceKind::cuda}) {
                const TrainingTask task = bf16_task(model, sizes, 8);
                const Workload work = workload_of(task);
                const model::KernelTraits traits{.kind = kind};
                StageTimelines stages(work, task.layout, traits, {});
                ASSERT_EQ(stages.why_none(), "");
                for (int stage = 0; stage < sizes.pp; ++stage) {
                    SCOPED_TRACE(testing::Message() << model.name << " pp " << sizes.pp << " stage " << stage);
                    const auto timeline = stages.of(stage, false);
                    ASSERT_TRUE(timeline);
                    EXPECT_TRUE(timeline->memory.ops.empty());
                    EXPECT_TRUE(timeline->memory.use == run_of(task, stage, traits));
                }
            }
        }
    }
}

TEST(StageTimelines, HostBytesAreWhatWaitsAtItsMost) {
    const std::vector<small::Sizes> layouts{{.dp = 2}, {.pp = 4}, {.pp = 2, .vpp = 2}, {.tp = 2, .pp = 2, .sequence_parallel = true}};
    for (const ModelSpec& model : {small::llama(), mixture()}) {
        for (const auto& sizes : layouts) {
            TrainingTask task = bf16_task(model, sizes, 8);
            task.training.offload.modules = {OffloadModule::attn_norm, OffloadModule::core_attn, OffloadModule::mlp_norm};
            if (model.moe) task.training.offload.modules.add(OffloadModule::moe_act);
            const Workload work = workload_of(task);
            ActivationMemory memory(work);
            for (int stage = 0; stage < sizes.pp; ++stage) {
                SCOPED_TRACE(testing::Message() << model.name << " pp " << sizes.pp << " vpp " << sizes.vpp << " stage " << stage);
                std::int64_t host = 0;
                const model::MemoryUse use = run_of(task, stage, {.kind = model::DeviceKind::cuda}, &host);
                EXPECT_GT(host, 0);
                EXPECT_EQ(memory.host_bytes(task.layout, stage), host);
                EXPECT_GE(use.peak, memory.peak(task.layout, stage).bytes);
            }
        }
    }
}

TEST(StageTimelines, EveryOpBeginsWhereTheOneBeforeItEnded) {
    const TrainingTask task = bf16_task(small::llama(), {.pp = 2, .vpp = 2}, 8);
    const Workload work = workload_of(task);
    StageTimelines stages(work, task.layout, {}, {});
    for (int stage = 0; stage < 2; ++stage) {
        const auto timeline = stages.of(stage, true);
        ASSERT_TRUE(timeline);
        const RankTimeline& memory = timeline->memory;
        ASSERT_EQ(memory.ops.size(), timeline->schedule.ops.size());
        EXPECT_FALSE(memory.begin.op);
        EXPECT_EQ(memory.ops.front().live, memory.begin.live);  // nothing of the begin outlives it
        for (std::size_t i = 0; i < memory.ops.size(); ++i) {
            const TimelineOp& op = memory.ops[i];
            EXPECT_EQ(op.index, static_cast<std::int64_t>(i));
            EXPECT_EQ(op.op, timeline->schedule.ops[i]);
            EXPECT_EQ(sum(op.at_begin), op.live);
            EXPECT_EQ(sum(op.at_peak), op.peak);
            EXPECT_GE(op.peak, op.live);
            EXPECT_FALSE(op.tensor.empty());
        }
        const auto at = static_cast<std::size_t>(memory.peak_op);
        EXPECT_EQ(memory.peak_part, StepPart::passes);
        EXPECT_EQ(memory.ops[at].peak, memory.use.peak);
        EXPECT_EQ(memory.ops[at].at_peak, memory.use.at_peak);
        EXPECT_EQ(memory.ops[at].tensor, memory.peak_tensor);
        EXPECT_LT(memory.end.live, memory.use.peak);
    }
}

TEST(StageTimelines, KeepTheFullestOfNeighboursInLongSchedules) {
    const TrainingTask task = bf16_task(small::llama(), {.pp = 2}, 3 * static_cast<int>(kMostTimelineOps));
    const Workload work = workload_of(task);
    StageTimelines stages(work, task.layout, {}, {});
    const auto timeline = stages.of(0, true);
    ASSERT_TRUE(timeline);
    const auto& ops = timeline->memory.ops;
    EXPECT_EQ(ops.size(), kMostTimelineOps);
    std::int64_t most = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
        EXPECT_EQ(ops[i].index / 6, static_cast<std::int64_t>(i));
        most = std::max(most, ops[i].peak);
    }
    EXPECT_EQ(most, timeline->memory.use.peak);
    const auto peak = std::find_if(ops.begin(), ops.end(), [&](const TimelineOp& op) { return op.peak == most; });
    EXPECT_EQ(peak->index, timeline->memory.peak_op);
}

TEST(StageTimelines, NameTheUpdateWhereItIsThePeak) {
    // A microbatch of few tokens: fp32 copies of 16-bit gradients outweigh its activations.
    ModelSpec model = small::llama();
    model.vocab = 4096;
    TrainingTask task = bf16_task(model, {}, 1);
    task.batch.sequence = 1;
    task.training.grad_dtype = Dtype::bf16;
    const Workload work = workload_of(task);
    StageTimelines stages(work, task.layout, {}, {});
    const auto timeline = stages.of(0, true);
    ASSERT_TRUE(timeline) << stages.why_none();
    EXPECT_EQ(timeline->memory.peak_part, StepPart::end);
    EXPECT_EQ(timeline->memory.peak_op, -1);
    EXPECT_EQ(timeline->memory.end.peak, timeline->memory.use.peak);
}

TEST(StageTimelines, SayWhyThereAreNone) {
    const auto why = [](const TrainingTask& task) {
        const Workload work = workload_of(task);
        StageTimelines stages(work, task.layout, {}, {});
        EXPECT_FALSE(stages.of(0, true));
        return stages.why_none();
    };
    TrainingTask task = bf16_task(small::llama(), {.pp = 2}, 4);
    task.training.precision = Precision::nvfp4;
    EXPECT_NE(why(task).find("nvfp4"), std::string::npos);
    task.training.precision = Precision::bf16;
    task.layout.num_microbatches = std::int64_t{1} << 40U;
    EXPECT_NE(why(task).find("too many"), std::string::npos);
}

TEST(StageTimelines, HoldTheBiasesOfExpertsThatModelStateCounts) {
    for (const std::int64_t mtp : {0, 1}) {
        ModelSpec model = mixture();
        model.moe->expert_bias = true;
        model.moe->score = RouterScore::sigmoid;
        model.mtp_layers = mtp;
        const TrainingTask task = bf16_task(model, {.pp = 2}, 4);
        const Workload work = workload_of(task);
        ModelStates states(work);
        StageTimelines stages(work, task.layout, {}, {});
        ASSERT_EQ(stages.why_none(), "");
        for (int stage = 0; stage < 2; ++stage) {
            const auto timeline = stages.of(stage, false);
            ASSERT_TRUE(timeline) << stages.why_none();
            EXPECT_EQ(timeline->memory.begin.at_begin[static_cast<std::size_t>(model::MemoryCategory::parameters)],
                      states.of(task.layout, stage).parameters);
        }
    }
}

/// The most bytes alive at once.
std::int64_t most_alive(const std::vector<Allocation>& tensors) {
    std::vector<std::pair<std::int64_t, std::int64_t>> changes;
    for (const Allocation& tensor : tensors) {
        changes.emplace_back(tensor.taken, tensor.bytes);
        if (tensor.returned >= 0) changes.emplace_back(tensor.returned, -tensor.bytes);
    }
    std::sort(changes.begin(), changes.end());
    std::int64_t live = 0, most = 0;
    for (const auto& [when, bytes] : changes) most = std::max(most, live += bytes);
    return most;
}

/// The timeline of engine megatron and the search's composition say the same of every stage.
void expect_composed(const TrainingTask& task, StepPart expected) {
    Workload work = workload_of(task);
    CostModel model(work);
    StageTimelines stages(work, task.layout, {}, [&](int stage) { return model.megatron_ops(task.layout, stage); });
    ASSERT_EQ(stages.why_none(), "");
    EXPECT_FALSE(stages.exact());
    for (int stage = 0; stage < static_cast<int>(task.layout.sizes.pp); ++stage) {
        SCOPED_TRACE(testing::Message() << task.model.name << " " << summary(task.layout) << " stage " << stage);
        const auto timeline = stages.of(stage, true);
        ASSERT_TRUE(timeline);
        const RankMemory composed = model.stage_memory(task.layout, stage);
        EXPECT_EQ(timeline->memory.use.peak, composed.framework_bytes);
        const RankMemory exact = exact_memory(composed, timeline->memory);
        EXPECT_TRUE(exact.high_water == composed.high_water);
        EXPECT_EQ(timeline->memory.peak_part, expected);
        ASSERT_TRUE(composed.peak_at);
        EXPECT_EQ(composed.peak_at->tensor, timeline->memory.peak_tensor);
        EXPECT_EQ(composed.peak_at->op == 0, expected == StepPart::end);
        if (expected == StepPart::end) {
            EXPECT_TRUE(exact.breakdown == composed.breakdown);
            continue;
        }
        // The timeline names the first of ops that are equally full, which need not be the same.
        const auto& ops = timeline->memory.ops;
        EXPECT_TRUE(std::any_of(ops.begin(), ops.end(), [&](const TimelineOp& op) {
            return op.op && signed_chunk(*op.op) == composed.peak_at->op && op.peak == composed.framework_bytes &&
                   op.tensor == composed.peak_at->tensor;
        }));
        if (signed_chunk(timeline->schedule.ops[static_cast<std::size_t>(timeline->memory.peak_op)]) == composed.peak_at->op) {
            EXPECT_TRUE(exact.breakdown == composed.breakdown);
        }
        // Tensor by tensor the passes hold as much.
        ActivationMemory activations(work);
        const auto tensors = play_allocations(activations.tensors(task.layout, stage), timeline->schedule);
        EXPECT_EQ(most_alive(tensors), activations.peak(task.layout, stage).bytes);
        // What the passes took is given back.
        EXPECT_EQ(timeline->memory.use.current, model.megatron_ops(task.layout, stage).held);
    }
}

TEST(MegatronTimelines, HaveThePeakThatTheSearchComposes) {
    const std::vector<small::Sizes> layouts{{.dp = 2}, {.pp = 4}, {.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sequence_parallel = true}};
    ModelSpec predicting = mixture();
    predicting.mtp_layers = 2;
    for (const ModelSpec& model : {small::gpt(), small::llama(), mixture(), predicting}) {
        for (const auto& sizes : layouts) {
            for (const Recompute recompute : {Recompute::none, Recompute::full}) {
                TrainingTask task = bf16_task(model, sizes, 8);
                task.batch.sequence = 256;
                task.layout.engine = Engine::megatron;
                task.layout.recompute = recompute;
                if (recompute == Recompute::full) task.layout.recompute_num_layers = sizes.pp == 1 ? 2 : 1;
                expect_composed(task, StepPart::passes);
            }
        }
    }
}

TEST(MegatronTimelines, GiveBackResidualStreamsOfBlocksAndMakeThemAgain) {
    ModelSpec dense = small::llama(), experts = mixture();
    dense.hyper_connections = experts.hyper_connections = HyperConnections{.streams = 3, .learned_head = true};
    ModelSpec latent = experts;  // norms alone in front of both halves
    latent.kv_heads = latent.heads;
    latent.mla = MlaSpec{.q_lora_rank = 12, .kv_lora_rank = 10, .qk_nope_head_dim = 6, .qk_rope_head_dim = 4, .v_head_dim = 6};
    for (const ModelSpec& model : {dense, experts, latent}) {
        for (const auto& sizes : {small::Sizes{.dp = 2}, small::Sizes{.tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sequence_parallel = true}}) {
            for (const std::int64_t block : {0, 1, 3}) {
                TrainingTask task = bf16_task(model, sizes, 8);
                task.batch.sequence = 256;
                task.layout.engine = Engine::megatron;
                task.layout.recompute = Recompute::selective;
                task.layout.recompute_modules = {RecomputeModule::mhc};
                task.layout.recompute_num_layers = block;
                expect_composed(task, StepPart::passes);
            }
        }
    }
}

TEST(MegatronTimelines, PeakInTheUpdateWhereItIsTheFullerInstant) {
    ModelSpec model = small::llama();
    model.vocab = 1 << 19U;
    TrainingTask task = bf16_task(model, {}, 1);
    task.batch.sequence = 1;
    task.training.grad_dtype = Dtype::bf16;
    task.layout.engine = Engine::megatron;
    expect_composed(task, StepPart::end);
}

TEST(StageTimelines, ReplaceWhatWasEstimatedAndNothingElse) {
    const TrainingTask task = bf16_task(small::llama(), {}, 2);
    const Workload work = workload_of(task);
    StageTimelines stages(work, task.layout, {}, {});
    const RankTimeline timeline = stages.of(0, false)->memory;
    RankMemory estimate;
    estimate.breakdown = {.parameters = 1, .activations = 2, .graph_objects = 3, .context = 5, .fragmentation = 7};
    estimate.high_water = estimate.breakdown;
    const RankMemory exact = exact_memory(estimate, timeline);
    EXPECT_EQ(exact.framework_bytes, timeline.use.peak);
    EXPECT_EQ(exact.peak_bytes(), timeline.use.peak + 3 + 5 + 7);
    EXPECT_EQ(exact.reserved_bytes, timeline.use.peak + 7);
    EXPECT_EQ(exact.breakdown.parameters, timeline.use.at_peak[static_cast<std::size_t>(model::MemoryCategory::parameters)]);
    EXPECT_EQ(exact.high_water.workspace, timeline.use.high_water[static_cast<std::size_t>(model::MemoryCategory::workspace)]);
    EXPECT_EQ(exact.high_water.context, 5);
}

}  // namespace
}  // namespace mgplan::simulator::stage_timeline_test
