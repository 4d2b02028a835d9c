// How much of the core does a matrix product use? Peak: a loop of independent fused multiply-adds in registers, in the widest
// vectors the processor has. Product: 1024³ through model/ops' matmul on the CPU device. Both are measured in turns, so that
// a busy neighbour or a changing clock hits both; the best of each counts.
//
// Usage: gemm_bench [size]

#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include <fmt/core.h>

#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"
#include "runtime/cpu/cpu_device.hpp"

namespace mgplan {
namespace {

/// Processor time of this thread: what other programs take from a shared machine does not count.
double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

constexpr std::int64_t kRounds = 4'000'000;
constexpr int kChains = 10;  // more than latency times units of any x86 core

/// FLOPs a second of one kind of vector: chains of x = x·a + b that never wait for each other.
#define MGPLAN_PEAK(NAME, TARGET, VECTOR, SET, FMADD, LANES)                                           \
    [[gnu::target(TARGET)]] double NAME() {                                                            \
        VECTOR sums[kChains];                                                                          \
        for (int i = 0; i < kChains; ++i) sums[i] = SET(1.0F + static_cast<float>(i));                 \
        const VECTOR a = SET(0.999F), b = SET(0.001F);                                                 \
        const auto begin = now();                                                                      \
        for (std::int64_t round = 0; round < kRounds; ++round) {                                       \
            _Pragma("GCC unroll 10") for (int i = 0; i < kChains; ++i) sums[i] = FMADD(sums[i], a, b); \
        }                                                                                              \
        const double seconds = (now() - begin);                                                        \
        for (int i = 0; i < kChains; ++i) asm volatile("" : : "x"(sums[i]));                           \
        return 2.0 * (LANES)*kChains * static_cast<double>(kRounds) / seconds;                         \
    }
MGPLAN_PEAK(peak512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, 16)
MGPLAN_PEAK(peak256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, 8)
#undef MGPLAN_PEAK

/// fp32; half of it in fp64.
double measured_peak() {
    double best = 0;
    if (__builtin_cpu_supports("avx512f")) best = std::max(best, peak512());
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) best = std::max(best, peak256());
    return best;
}

struct Product {
    Dtype dtype;
    model::Tensor a, b;
    double best = 0;
};

int run(std::int64_t size) {
    runtime::CpuDevice device;
    std::vector<Product> products;
    for (const Dtype dtype : {Dtype::fp32, Dtype::fp64, Dtype::bf16}) {
        Product product{dtype, device.empty({size, size}, dtype, model::MemoryCategory::activations, "a"),
                        device.empty({size, size}, dtype, model::MemoryCategory::activations, "b")};
        model::fill(product.a, 0.5);
        model::fill(product.b, 0.25);
        products.push_back(std::move(product));
    }
    const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
    double peak = 0;
    for (int round = 0; round < 12; ++round) {
        peak = std::max(peak, measured_peak());
        for (Product& product : products) {
            const auto begin = now();
            const model::Tensor out = model::matmul(product.a, product.b, {.b = true}, "product");
            product.best = std::max(product.best, flops / (now() - begin));
        }
    }
    if (peak == 0) {
        fmt::print("this processor has no AVX2: no peak to compare with\n");
        return 0;
    }
    fmt::print("peak of one core, fp32 {:.1f} GFLOP/s, fp64 {:.1f} GFLOP/s\n", peak / 1e9, peak / 2e9);
    for (const Product& product : products) {
        const double of = product.dtype == Dtype::fp64 ? peak / 2 : peak;
        fmt::print("{0}: {1}x{1}x{1} at {2:.1f} GFLOP/s, {3:.1f} % of the {4} peak\n", to_string(product.dtype), size, product.best / 1e9,
                   100 * product.best / of, product.dtype == Dtype::fp64 ? "fp64" : "fp32");
    }
    return 0;
}

}  // namespace
}  // namespace mgplan

int main(int count, char** words) {
    return mgplan::run(count > 1 ? std::atoll(words[1]) : 1024);
}
