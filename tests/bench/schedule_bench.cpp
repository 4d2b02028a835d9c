// How long do the order tables of a large pipeline take (pp 64, vpp 8, 4,096 microbatches: 4.2 million entries)? The
// simulator prices exactly these lists; the goal is one second for all ranks, and the command that prints them as JSON
// should not be much slower. The planner needs only the live counts at the peak and the stage split, per candidate.
//
// 2026-11-21, Release, one core of an AMD EPYC at 2.4 GHz (shared machine, CPU time): 12 ms for the lists of all ranks,
// 123 ms for the command with its JSON, 22 ns for the live counts, 0.8 to 1.6 us for an automatic split.

#include <sstream>

#include <benchmark/benchmark.h>

#include "cli/command.hpp"
#include "plan/layout/stage_split.hpp"
#include "plan/schedule/schedule.hpp"

namespace mgplan {
namespace {

void order_tables_of_all_ranks(benchmark::State& state) {
    ScheduleRequest request;
    request.pp = 64;
    request.vpp = 8;
    request.microbatches = 4096;
    for (auto _ : state) {
        const Schedule schedule(request);
        for (int rank = 0; rank < request.pp; ++rank) benchmark::DoNotOptimize(schedule.rank(rank));
    }
}
BENCHMARK(order_tables_of_all_ranks)->Unit(benchmark::kMillisecond);

void order_tables_as_json(benchmark::State& state) {
    for (auto _ : state) {
        std::ostringstream out;
        std::ostringstream err;
        cli::Console console{out, err};
        benchmark::DoNotOptimize(
            cli::run_mgplan({"schedule", "--pp", "64", "--vpp", "8", "--microbatches", "4096", "--format", "json"}, console));
    }
}
BENCHMARK(order_tables_as_json)->Unit(benchmark::kMillisecond);

void live_chunks_at_the_peak(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(live_at_peak(64, 8, 4096, 64, 3));
}
BENCHMARK(live_chunks_at_the_peak);

void automatic_split_of_61_layers(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(automatic_stage_split(61, 1, 16, 2));
}
BENCHMARK(automatic_split_of_61_layers);

void automatic_split_of_126_layers(benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(automatic_stage_split(126, 0, 32, 3));
}
BENCHMARK(automatic_split_of_126_layers);

}  // namespace
}  // namespace mgplan
