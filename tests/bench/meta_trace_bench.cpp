// How long does the trace of one rank's training step on shapes take? The planner asks for many, and one answers a user's
// question; the goal is 20 ms for a rank of DeepSeek-V3 on 2048 GPUs. Construction of the rank is part of it.

#include <memory>

#include <benchmark/benchmark.h>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"

namespace mgplan::model {
namespace {

struct Sizes {
    std::int64_t layers, hidden, ffn, heads, kv_heads, head_dim, vocab;
    std::int64_t world, tp, cp, pp;
    int vpp;
    std::int64_t sequence, microbatches;
};

TrainingTask task_of(const Sizes& sizes) {
    TrainingTask task;
    ModelSpec& model = task.model;
    model.name = "traced";
    model.layers = sizes.layers;
    model.hidden = sizes.hidden;
    model.ffn = sizes.ffn;
    model.heads = sizes.heads;
    model.kv_heads = sizes.kv_heads;
    model.head_dim = sizes.head_dim;
    model.vocab = sizes.vocab;
    model.max_positions = sizes.sequence;
    Layout& layout = task.layout;
    layout.sizes.world = sizes.world;
    layout.sizes.tp = layout.sizes.etp = sizes.tp;
    layout.sizes.cp = sizes.cp;
    layout.sizes.pp = sizes.pp;
    layout.vpp = sizes.vpp;
    layout.group_size = sizes.pp;
    layout.num_microbatches = sizes.microbatches;
    layout.sequence_parallel = sizes.tp > 1;
    layout.split =
        std::make_shared<const StageSplit>(automatic_stage_split(sizes.layers, 0, static_cast<int>(sizes.pp), sizes.vpp).value());
    task.batch = {sizes.microbatches * layout.dp(), sizes.sequence};
    return task;
}

/// One step of a rank of the middle stages, everything made anew.
void trace(benchmark::State& state, const Sizes& sizes) {
    const TrainingTask task = task_of(sizes);
    std::size_t ops = 0;
    for (auto _ : state) {
        MetaDevice device;
        CollectiveCounter traffic;
        const int world = static_cast<int>(sizes.world);
        RankTrainer trainer(task, device, recording_world(world / 2 + 1, world, &traffic));
        (void)trainer.step([](std::int64_t, std::span<std::int32_t>) {}, 1e-4);
        benchmark::DoNotOptimize(device.memory());
        ops = device.ops().size();
    }
    state.counters["ops"] = static_cast<double>(ops);
}

// Llama-3.1-405B on 16,384 GPUs (arXiv 2407.21783, section 3.3.2: tp 8, pp 16; 16 sequences a pipeline).
void llama_405b(benchmark::State& state) {
    trace(state, {126, 16384, 53248, 128, 8, 128, 128256, 16384, 8, 1, 16, 1, 8192, 16});
}
BENCHMARK(llama_405b)->Unit(benchmark::kMillisecond);

// DeepSeek-V3 has 61 layers; 2048 GPUs with pp 16 as its report (arXiv 2412.19437, section 3.2), here as a dense model with as
// many layers and heads.
void deepseek_v3_as_dense(benchmark::State& state) {
    trace(state, {61, 7168, 18432, 128, 128, 128, 129280, 2048, 1, 1, 16, 1, 4096, 120});
}
BENCHMARK(deepseek_v3_as_dense)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mgplan::model
