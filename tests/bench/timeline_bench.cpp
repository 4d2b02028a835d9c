// How long does an exact timeline take? Asked for: pp 16, vpp 8, 512 microbatches in 10 ms; the zero-bubble orders of pp 16 and
// 256 microbatches in 50 ms.
//
// 2026-11-21, Release, one core of an AMD EPYC at 2.4 GHz (shared machine, CPU time): 9.6 ms for lists, program and three runs
// of pp 16, vpp 8, 512 microbatches, 1.3 ms for one run; orders with their programs 0.3 to 0.7 ms, v-min 1.7 ms, v-half 3.2 ms.

#include <benchmark/benchmark.h>

#include "simulator/timeline/pipeline_run.hpp"

namespace mgplan::simulator {
namespace {

PipelineTimes equal_times(const PipelineProgram& program) {
    PipelineTimes times;
    times.passes.assign(program.slots(), 1);
    times.transfer = 0.01;
    times.overlap_transfers = true;
    times.reduce.assign(static_cast<std::size_t>(program.pp * program.chunks), 1);
    times.gather = times.buckets = times.reduce;
    times.overlap_reduce = times.overlap_gather = true;
    return times;
}

ScheduleRequest large() {
    ScheduleRequest request;
    request.pp = 16;
    request.vpp = 8;
    request.microbatches = 512;
    return request;
}

/// Order lists, deadlock detector, and the three runs that tell bubble, transfers and reductions apart.
void exact_timeline_of_131072_passes(benchmark::State& state) {
    for (auto _ : state) {
        const PipelineProgram program = make_program(order_of(Schedule(large())));
        const PipelineTimes times = equal_times(program);
        for (int i = 0; i < 3; ++i) benchmark::DoNotOptimize(run_pipeline(program, times).end);
    }
}
BENCHMARK(exact_timeline_of_131072_passes)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void one_run_of_131072_passes(benchmark::State& state) {
    const PipelineProgram program = make_program(order_of(Schedule(large())));
    const PipelineTimes times = equal_times(program);
    for (auto _ : state) benchmark::DoNotOptimize(run_pipeline(program, times).end);
}
BENCHMARK(one_run_of_131072_passes)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

void split_order_of_pp16_m256(benchmark::State& state) {
    SplitScheduleRequest request;
    request.kind = static_cast<SplitSchedule>(state.range(0));
    request.pp = 16;
    request.microbatches = 256;
    for (auto _ : state) benchmark::DoNotOptimize(make_program(split_order(request)).ops.size());
    state.SetLabel(std::string(to_string(request.kind)));
}
BENCHMARK(split_order_of_pp16_m256)->DenseRange(0, 5)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime();

}  // namespace
}  // namespace mgplan::simulator
