// How fast does the search price layouts, and does a whole default search stay within 5 s on two cores?
// Asked for: at least 50,000 full evaluations (memory and time of one layout, cold start) a second on one core.
// Results: docs/measurements/.

#include <benchmark/benchmark.h>

#include <algorithm>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "planner/search.hpp"
#include "planner/simulator_cost.hpp"

namespace {

using namespace mgplan;

/// A preset on dgx-h100 with 4 Mi to 16 Mi tokens a step, as `mgplan plan` assumes them.
Workload workload_of(const char* model, std::int64_t world) {
    Workload work;
    work.model = formats::load_model(model).model;
    work.cluster = load_cluster("dgx-h100");
    work.world = world;
    work.batch.sequence = work.model.default_sequence.value_or(4096);
    work.batch.global_batch = std::clamp<std::int64_t>(world * 4096, std::int64_t{4} << 20, std::int64_t{16} << 20) / work.batch.sequence;
    work.memory_limit = work.cluster.memory_bytes;
    return work;
}

void search_whole_space(benchmark::State& state, const char* model, std::int64_t world, int threads, bool prune) {
    const Workload work = workload_of(model, world);
    planner::SearchOptions options;
    options.threads = threads;
    options.prune = prune;
    std::int64_t evaluated = 0, legal = 0;
    for (auto _ : state) {
        // Every search makes its cost models anew: nothing is remembered from the one before.
        const auto result = planner::search(work, planner::SearchSpace{}, planner::simulator_cost_model(), options);
        benchmark::DoNotOptimize(result.best.size());
        evaluated += result.evaluated;
        legal = result.counts.legal;
    }
    state.SetItemsProcessed(evaluated);
    state.counters["legal"] = static_cast<double>(legal);
}

// Items a second of processor time, on one thread: full evaluations of one core, as a default search makes them (`evaluated` of
// `mgplan plan`; what does not fit is looked at in the same time and not counted), and of every layout, fitting or not.
#define MGPLAN_EVALUATIONS(name, model, world, prune) \
    BENCHMARK_CAPTURE(search_whole_space, name, model, world, 1, prune)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()
MGPLAN_EVALUATIONS(evaluations_llama3_8b_on_16, "llama3-8b", 16, true);
MGPLAN_EVALUATIONS(evaluations_mixtral_8x7b_on_1024, "mixtral-8x7b", 1024, true);
MGPLAN_EVALUATIONS(evaluations_llama31_405b_on_16384, "llama3.1-405b", 16384, true);
MGPLAN_EVALUATIONS(evaluations_deepseek_v3_on_2048, "deepseek-v3", 2048, true);
MGPLAN_EVALUATIONS(unpruned_llama31_405b_on_1024, "llama3.1-405b", 1024, false);
MGPLAN_EVALUATIONS(unpruned_deepseek_v3_on_256, "deepseek-v3", 256, false);
#undef MGPLAN_EVALUATIONS

// Time: the default search on two threads.
BENCHMARK_CAPTURE(search_whole_space, default_llama31_405b_on_16384, "llama3.1-405b", 16384, 2, true)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(search_whole_space, default_deepseek_v3_on_2048, "deepseek-v3", 2048, 2, true)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();
BENCHMARK_CAPTURE(search_whole_space, default_llama3_8b_on_16, "llama3-8b", 16, 2, true)
    ->Unit(benchmark::kMillisecond)
    ->MeasureProcessCPUTime()
    ->UseRealTime();

}  // namespace
