// How long do the groups of a million ranks take? Plans for the largest clusters are asked for interactively, and launch
// scripts list all groups; the goal is one second on one core for a world of 2^20. The rules alone are asked once per
// candidate layout of a search, which must stay in the nanoseconds.
//
// 2026-11-21, Release, one core of an AMD EPYC at 2.4 GHz (shared machine, CPU time): 62 ms for all groups of 2^20 ranks,
// 19 ns for the rules of one layout.

#include <benchmark/benchmark.h>

#include "plan/layout/rank_groups.hpp"

namespace mgplan {
namespace {

ParallelSizes million_ranks() {
    ParallelSizes sizes;
    sizes.world = std::int64_t{1} << 20;
    sizes.tp = 8;
    sizes.cp = 2;
    sizes.ep = 8;
    sizes.etp = 1;
    sizes.pp = 16;
    return sizes;
}

void groups_of_a_million_ranks(benchmark::State& state) {
    const ParallelSizes sizes = million_ranks();
    for (auto _ : state) {
        const RankGroups groups(sizes);
        benchmark::DoNotOptimize(groups.all().data());
    }
}
BENCHMARK(groups_of_a_million_ranks)->Unit(benchmark::kMillisecond);

void rules_of_one_layout(benchmark::State& state) {
    ParallelSizes sizes = million_ranks();
    for (auto _ : state) {
        benchmark::DoNotOptimize(sizes);
        benchmark::DoNotOptimize(first_grid_problem(sizes));
    }
}
BENCHMARK(rules_of_one_layout);

}  // namespace
}  // namespace mgplan
