// How long does the exact buffer layout of one model chunk take? The planner wants padding for each layout it shows and
// the simulator for each stage; the goal is below 1 ms for thousands of parameters.
//
// 2026-11-21, Release, one core of an AMD EPYC at 2.4 GHz (shared machine, CPU time): 1.7 us for the 48 parameters of a
// stage, 150 us for 4,096 parameters, 38 us for one rank's shards of all 1,200 or so buckets of those.

#include <benchmark/benchmark.h>

#include "model/optimizer/buffer_layout.hpp"
#include "model/optimizer/shard_ranges.hpp"

namespace mgplan::model {
namespace {

/// A stage of Llama-3.1-405B's layer shapes at tp 8 repeated until there are `count` parameters.
std::vector<BufferParameter> parameters_like_llama(std::int64_t count) {
    constexpr std::int64_t kHidden = 16'384, kFfn = 53'248 / 8;
    constexpr std::int64_t kLayer[] = {kHidden * 2048, kHidden, 2304 * kHidden, kHidden, 2 * kFfn * kHidden, kFfn * kHidden};
    std::vector<BufferParameter> list;
    for (std::int64_t i = 0; i < count; ++i) list.push_back({.numel = kLayer[i % 6]});
    return list;
}

void lay_out(benchmark::State& state) {
    const auto parameters = parameters_like_llama(state.range(0));
    BufferOptions options;
    options.dp = 128;
    options.bucket_size = default_bucket_size(options.dp);
    for (auto _ : state) benchmark::DoNotOptimize(lay_out_buffers(parameters, options));
}
BENCHMARK(lay_out)->Arg(48)->Arg(4096)->Unit(benchmark::kMicrosecond);

void shards_of_one_rank(benchmark::State& state) {
    BufferOptions options;
    options.dp = 128;
    options.bucket_size = default_bucket_size(options.dp);
    const BufferLayout buffer = lay_out_buffers(parameters_like_llama(4096), options).buffers.front();
    for (auto _ : state) {
        for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) benchmark::DoNotOptimize(shard_ranges(buffer, bucket, 77));
    }
}
BENCHMARK(shards_of_one_rank)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mgplan::model
