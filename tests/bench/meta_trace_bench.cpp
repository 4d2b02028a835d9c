// How long does the trace of one rank's training step on shapes take? The planner asks for many, and one answers a user's
// question; the goal is 20 ms for a rank of DeepSeek-V3 on 2048 GPUs. Construction of the rank is part of it.

#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "formats/model_source.hpp"
#include "model/communicator/collective_counter.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"

namespace mgplan::model {
namespace {

struct Sizes {
    std::int64_t world, tp, ep, pp, sequence, microbatches;
};

TrainingTask task_of(const std::string& preset, const Sizes& sizes) {
    TrainingTask task;
    task.model = formats::load_model(preset).model;
    Layout& layout = task.layout;
    layout.sizes.world = sizes.world;
    layout.sizes.tp = sizes.tp;
    layout.sizes.ep = sizes.ep;
    layout.sizes.etp = sizes.ep > 1 ? 1 : sizes.tp;
    layout.sizes.pp = sizes.pp;
    layout.group_size = sizes.pp;
    layout.num_microbatches = sizes.microbatches;
    layout.sequence_parallel = sizes.tp > 1;
    layout.split = std::make_shared<const StageSplit>(
        automatic_stage_split(task.model.layers, task.model.mtp_layers, static_cast<int>(sizes.pp), 1).value());
    task.batch = {sizes.microbatches * layout.dp(), sizes.sequence};
    return task;
}

/// One step of a rank of the middle stages, everything made anew.
void trace(benchmark::State& state, const std::string& preset, const Sizes& sizes) {
    const TrainingTask task = task_of(preset, sizes);
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

// On 16,384 GPUs (arXiv 2407.21783, section 3.3.2: tp 8, pp 16; 16 sequences a pipeline).
void llama_405b(benchmark::State& state) {
    trace(state, "llama3.1-405b", {16384, 8, 1, 16, 8192, 16});
}
BENCHMARK(llama_405b)->Unit(benchmark::kMillisecond);

// On 2048 GPUs with ep 64 and pp 16 as its report (arXiv 2412.19437, section 3.2); 15,360 sequences, 120 for each pipeline.
void deepseek_v3(benchmark::State& state) {
    trace(state, "deepseek-v3", {2048, 1, 64, 16, 4096, 120});
}
BENCHMARK(deepseek_v3)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mgplan::model
