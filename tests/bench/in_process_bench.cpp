// How long do ranks as threads need for a collective? Tensor parallelism issues several for each layer and microbatch, so
// what a barrier and a small all-reduce cost decides how small a model the tests can train on many ranks.
#include <chrono>

#include <benchmark/benchmark.h>

#include "runtime/comm/in_process/in_process_world.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::runtime {
namespace {

using model::Reduction;

/// Times `operations` calls of body(group, numbers) on `ranks` threads, started together.
template <class Body>
double seconds_of(int ranks, std::int64_t elements, int operations, const Body& body) {
    InProcessWorld world(ranks);
    std::vector<std::int32_t> everyone;
    for (int rank = 0; rank < ranks; ++rank) everyone.push_back(rank);
    double seconds = 0;
    run_ranks(world, [&](int rank) {
        tests::HostDevice device;
        const auto group = world.join(rank, "all", everyone);
        const model::Tensor numbers = device.zeros({elements}, Dtype::fp32, model::MemoryCategory::communication, "numbers");
        body(*group, numbers);
        group->barrier();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < operations; ++i) body(*group, numbers);
        group->barrier();
        if (rank == 0) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    });
    return seconds;
}

template <class Body>
void run(benchmark::State& state, std::int64_t elements, int operations, const Body& body) {
    // The time of a whole round is reported, so that the benchmark's own clock sees what it costs; the counter is the answer.
    double seconds = 0;
    for (auto _ : state) {
        const double round = seconds_of(static_cast<int>(state.range(0)), elements, operations, body);
        state.SetIterationTime(round);
        seconds += round;
    }
    state.counters["us_each"] = 1e6 * seconds / static_cast<double>(state.iterations() * operations);
}

void barrier(benchmark::State& state) {
    run(state, 1, 200, [](model::Communicator& group, const model::Tensor&) { group.barrier(); });
}
BENCHMARK(barrier)->Arg(2)->Arg(4)->Arg(16)->UseManualTime()->Unit(benchmark::kMicrosecond);

void all_reduce(benchmark::State& state) {
    const std::int64_t bytes = state.range(1);
    run(state, bytes / 4, bytes > 1'000'000 ? 10 : 100,
        [](model::Communicator& group, const model::Tensor& numbers) { group.all_reduce(numbers, Reduction::sum); });
}
BENCHMARK(all_reduce)->ArgsProduct({{2, 4, 16}, {4 << 10, 64 << 10, 1 << 20}})->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mgplan::runtime
