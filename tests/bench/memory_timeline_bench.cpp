// How long do the memory timelines of a whole pipeline take? Each stage is probed (its layers traced on shapes) and its
// schedule played; the goal is 50 ms for all stages of Llama 3.1 405B on 16 stages of 8 chunks with 512 microbatches.

#include <memory>
#include <string>

#include <benchmark/benchmark.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "simulator/memory/stage_timeline.hpp"

namespace mgplan::simulator {
namespace {

struct Sizes {
    std::int64_t world, tp, ep, pp, vpp, sequence, microbatches;
};

/// The preset without what the layers do not compute: it has no part in the time of a trace worth naming.
ModelSpec trainable(const std::string& preset) {
    ModelSpec model = formats::load_model(preset).model;
    model.mtp_layers = 0;
    model.rotary_scaling.clear();
    if (model.moe) {
        model.moe->expert_bias = false;
        model.moe->groups = model.moe->group_top_k = 0;
    }
    return model;
}

void timelines(benchmark::State& state, const std::string& preset, const Sizes& sizes, bool keep_ops) {
    Workload work;
    work.model = trainable(preset);
    work.cluster = load_cluster("dgx-h100");
    work.world = sizes.world;
    Layout layout;
    layout.sizes.world = sizes.world;
    layout.sizes.tp = sizes.tp;
    layout.sizes.ep = sizes.ep;
    layout.sizes.etp = sizes.ep > 1 ? 1 : sizes.tp;
    layout.sizes.pp = sizes.pp;
    layout.vpp = static_cast<int>(sizes.vpp);
    layout.group_size = sizes.pp;
    layout.num_microbatches = sizes.microbatches;
    layout.sequence_parallel = sizes.tp > 1;
    const auto pp = static_cast<int>(sizes.pp);
    layout.split = std::make_shared<const StageSplit>(automatic_stage_split(work.model.layers, 0, pp, layout.vpp).value());
    work.batch = {sizes.microbatches * layout.dp(), sizes.sequence};
    std::int64_t ops = 0;
    for (auto _ : state) {
        StageTimelines stages(work, layout, kernels_of(work.cluster), {});
        ops = 0;
        for (int stage = 0; stage < pp; ++stage) {
            const auto timeline = stages.of(stage, keep_ops);
            if (!timeline) return state.SkipWithError(stages.why_none().c_str());
            benchmark::DoNotOptimize(timeline->memory.use.peak);
            ops += std::ssize(timeline->schedule.ops);
        }
    }
    state.counters["stages"] = static_cast<double>(pp);
    state.counters["ops"] = static_cast<double>(ops);
}

// On 16,384 GPUs (arXiv 2407.21783, section 3.3.2: tp 8, pp 16) with 8 chunks a stage, so 128 chunks of 126 layers.
BENCHMARK_CAPTURE(timelines, llama_405b, "llama3.1-405b", {16384, 8, 1, 16, 8, 8192, 512}, false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(timelines, llama_405b_every_op, "llama3.1-405b", {16384, 8, 1, 16, 8, 8192, 512}, true)->Unit(benchmark::kMillisecond);
// On 2048 GPUs with ep 64 and pp 16 as its report (arXiv 2412.19437, section 3.2); 15,360 sequences, 120 for each pipeline.
BENCHMARK_CAPTURE(timelines, deepseek_v3, "deepseek-v3", {2048, 1, 64, 16, 1, 4096, 120}, false)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace mgplan::simulator
