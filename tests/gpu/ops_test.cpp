// Every op on a GPU against the CPU, and the bytes it takes against the prediction.

#include <cmath>
#include <new>

#include "model/communicator/communicator.hpp"
#include "model/device/memory_operations.hpp"
#include "model/meta/meta_device.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/linear.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/rotary.hpp"
#include "model/ops/router.hpp"
#include "runtime/comm/reduce.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/gpu/gpu.hpp"
#include "tests/model/ops/every_op.hpp"

namespace mgplan::tests::ops_test {
namespace {

using namespace model;

/// The root of the mean square difference, relative to that of the expected values; every value must be a number.
double error_of(const std::vector<double>& actual, const std::vector<double>& expected) {
    EXPECT_EQ(actual.size(), expected.size());
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (actual[i] == expected[i]) {
            size += std::isfinite(expected[i]) ? expected[i] * expected[i] : 0;
            continue;  // infinities too
        }
        difference += (actual[i] - expected[i]) * (actual[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    return std::sqrt(difference / std::max(size, 1e-300));
}

double tolerance_of(Dtype dtype) {
    return dtype == Dtype::bf16 ? 0.012 : dtype == Dtype::fp32 ? 1e-4 : 1e-10;
}

class GpuOps : public GpuTest, public testing::WithParamInterface<Dtype> {};

TEST_P(GpuOps, AgreeWithTheCpu) {
    runtime::CpuDevice cpu;
    const auto gpu = device();
    Maker on_cpu(cpu, GetParam()), on_gpu(*gpu, GetParam());
    const auto expected = run_every_op(on_cpu), actual = run_every_op(on_gpu);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        expect_close(read(actual[i].second), read(expected[i].second), tolerance_of(GetParam()), actual[i].first);
    }
}

class GpuFp8Ops : public GpuFp8, public testing::WithParamInterface<Dtype> {};

TEST_P(GpuFp8Ops, CastAndMultiplyAsTheCpuDoes) {
    runtime::CpuDevice cpu;
    const auto gpu = device();
    Maker on_cpu(cpu, GetParam()), on_gpu(*gpu, GetParam());
    const auto expected = run_fp8_ops(on_cpu), actual = run_fp8_ops(on_gpu);
    ASSERT_EQ(actual.size(), expected.size());
    // Forwards may add with 14 bits on Hopper (cublas_lt.cpp).
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const bool codes = actual[i].second.dtype() == Dtype::int32;
        expect_close(read(actual[i].second), read(expected[i].second), codes ? 0 : 0.012, actual[i].first);
    }
}

class GpuFp8Blocks : public GpuFp8Ops {
protected:
    /// What the card computes of these against the CPU; skipped where run refuses scales of blocks.
    void compare(std::vector<std::pair<std::string, Tensor>> (*run)(Maker&, bool)) {
        const int architecture = traits().architecture;
        const bool of_128 = architecture == 90, of_32 = architecture >= 100 && architecture < 120;
        if (!of_128 && !of_32) GTEST_SKIP() << "neither Hopper nor a data-centre Blackwell: run refuses scales of blocks";
        runtime::CpuDevice cpu;
        const auto gpu = device();
        Maker on_cpu(cpu, GetParam()), on_gpu(*gpu, GetParam());
        const auto expected = run(on_cpu, of_32), actual = run(on_gpu, of_32);
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i) {
            const bool codes = actual[i].second.dtype() == Dtype::int32;
            expect_close(read(actual[i].second), read(expected[i].second), codes ? 0 : 0.012, actual[i].first);
        }
    }
};

TEST_P(GpuFp8Blocks, CastAndMultiplyAsTheCpuDoes) {
    compare(run_fp8_block_ops);
}

// By itself: a library that refuses these hides nothing else.
TEST_P(GpuFp8Blocks, MultiplyFewerThan64TermsAsTheCpuDoes) {
    compare(run_short_fp8_block_ops);
}

TEST_P(GpuOps, TakeThePredictedBytes) {
    const auto gpu = device();
    MetaDevice meta({.stands_for = traits()});
    Maker on_gpu(*gpu, GetParam()), on_meta(meta, GetParam());
    const auto results = run_every_op(on_gpu), shapes = run_every_op(on_meta);
    EXPECT_EQ(gpu->memory(), meta.memory());
}

TEST_P(GpuOps, GiveTheSameBitsAgain) {
    const auto gpu = device();
    Maker first(*gpu, GetParam()), second(*gpu, GetParam());
    const auto once = run_every_op(first), again = run_every_op(second);
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(read(once[i].second), read(again[i].second)) << once[i].first;
}

TEST_P(GpuOps, MultiplyInEveryOrientationAndAlignment) {
    runtime::CpuDevice cpu;
    const auto gpu = device();
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1}, {3, 5, 7}, {64, 128, 256}, {130, 129, 257}, {512, 384, 640}}) {
        for (const bool transpose_a : {false, true}) {
            for (const bool transpose_b : {false, true}) {
                const auto run = [&, m = m, n = n, k = k](Device& on) {
                    Maker maker(on, GetParam());
                    // One row more on top, left out again: operands that start anywhere.
                    const auto odd = [&](std::int64_t rows, std::int64_t columns) {
                        return maker.random({rows + 1, columns}).slice(1, rows + 1);
                    };
                    const Tensor a = transpose_a ? odd(k, m) : odd(m, k), b = transpose_b ? odd(n, k) : odd(k, n);
                    const Tensor sum = maker.random({m, n}, GetParam() == Dtype::bf16 ? Dtype::fp32 : GetParam());
                    matmul_accumulate(a, b, {transpose_a, transpose_b}, sum);
                    matmul_accumulate(a, b, {transpose_a, transpose_b}, sum);
                    return std::pair{read(matmul(a, b, {transpose_a, transpose_b}, "product")), read(sum)};
                };
                const auto expected = run(cpu), actual = run(*gpu);
                EXPECT_LT(error_of(actual.first, expected.first), tolerance_of(GetParam())) << m << " " << n << " " << k;
                EXPECT_LT(error_of(actual.second, expected.second), GetParam() == Dtype::fp64 ? 1e-10 : 1e-4) << m << " " << n << " " << k;
            }
        }
    }
}

// In bf16 a product of the library does the work of the bias, on the CPU passes do.
TEST_P(GpuOps, AddAndSumUpBiasesOfLayersAsTheCpuDoes) {
    runtime::CpuDevice cpu;
    const auto gpu = device();
    const Dtype wide = GetParam() == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
    for (const auto& [rows, in, out] : {std::array<std::int64_t, 3>{1, 8, 8}, {3, 16, 24}, {129, 256, 128}, {257, 384, 1160}}) {
        const auto run = [&, rows = rows, in = in, out = out](Device& on) {
            Maker maker(on, GetParam());
            const Tensor x = maker.random({rows, in}), weight = maker.random({out, in}), dy = maker.random({rows, out});
            // The second of two biases in one buffer.
            const Tensor bias = maker.random({2, out}).slice(1, 2).view({out});
            const Tensor d_weight = maker.zeros({out, in}, wide), d_bias = maker.random({out}, wide);
            EXPECT_EQ(adds_bias_in_product(x, weight, bias), &on == gpu.get() && GetParam() == Dtype::bf16);
            const auto y = read(linear(x, weight, bias, "linear"));
            for (const bool accumulate : {false, true}) {
                if (sums_columns_in_product(dy, x, d_weight)) {
                    linear_gradients(dy, x, d_weight, accumulate, d_bias);
                    continue;
                }
                matmul_accumulate(dy, x, {.a = true}, d_weight);
                bias_gradient(dy, d_bias);
            }
            return std::vector{y, read(d_weight), read(d_bias)};
        };
        const auto expected = run(cpu), actual = run(*gpu);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const double tolerance = i == 0 ? tolerance_of(GetParam()) : GetParam() == Dtype::fp64 ? 1e-10 : 1e-4;
            EXPECT_LT(error_of(actual[i], expected[i]), tolerance) << i << " of " << rows << " rows, " << in << " to " << out;
        }
    }
}

TEST_P(GpuOps, AgreeWithTheCpuAtSizesOfManyBlocks) {
    runtime::CpuDevice cpu;
    const auto gpu = device();
    const auto run = [&](Device& on) {
        Maker maker(on, GetParam());
        std::vector<std::vector<double>> results;
        const std::int64_t rows = 513, width = 1000;
        const Tensor x = maker.random({rows, width}), dy = maker.random({rows, width}), weight = maker.random({width});
        const Dtype sums = GetParam() == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
        NormStatistics statistics;
        results.push_back(read(norm(x, weight, {}, Normalization::rms_norm, 1e-5, statistics)));
        const Tensor weight_gradient = maker.zeros({width}, sums), bias_sums = maker.zeros({width}, sums);
        results.push_back(read(norm_backward(dy, x, weight, statistics, Normalization::rms_norm, weight_gradient, {})));
        bias_gradient(dy, bias_sums);
        results.push_back(read(weight_gradient));
        results.push_back(read(bias_sums));
        std::vector<double> ids;
        for (int i = 0; i < 3000; ++i) ids.push_back(i % 1500 < 1400 ? i * 7 % 23 : i % 300);
        const Tensor gradient = maker.zeros({200, 64}, sums);
        embedding_backward(maker.random({3000, 64}), maker.ids(ids, {3000}), 3, gradient);
        results.push_back(read(gradient));
        results.push_back({sum_of_squares(x)});
        const Tensor logits = maker.random({100, 5000});
        std::vector<double> targets;
        for (int i = 0; i < 100; ++i) targets.push_back(i * 37);
        const Tensor wanted = maker.ids(targets, {100}), maximum = row_maximum(logits, {0, 4990});
        const SoftmaxSums softmax = softmax_sums(logits, wanted, maximum, {0, 4990});
        cross_entropy_backward(logits, wanted, maximum, softmax.exponentials, {0, 4990}, 1);
        results.push_back(read(softmax.exponentials));
        results.push_back(read(logits));
        return results;
    };
    const auto expected = run(cpu), actual = run(*gpu);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_LT(error_of(actual[i], expected[i]), tolerance_of(GetParam())) << i;
}

INSTANTIATE_TEST_SUITE_P(InEachType, GpuOps, testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

INSTANTIATE_TEST_SUITE_P(InEachType, GpuFp8Blocks, testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

INSTANTIATE_TEST_SUITE_P(InEachType, GpuFp8Ops, testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

class GpuAttention : public GpuTest {};

TEST_F(GpuAttention, OfWholeSequencesIsFusedAndAgreesWithTheCpu) {
    runtime::CpuDevice cpu;
    const auto gpu = device();
    for (const auto& [heads, kv_heads, head_dim] : {std::array<std::int64_t, 3>{4, 4, 64}, {4, 2, 64}, {8, 2, 128}, {4, 1, 128}}) {
        const Positions places = zigzag_positions(256, 2, 1, 0);
        const auto run = [&, h = heads, kv = kv_heads, d = head_dim](Device& on) {
            Maker maker(on, Dtype::bf16);
            const Tensor q = maker.random({512, h, d}), k = maker.random({512, kv, d}), v = maker.random({512, kv, d}),
                         d_output = maker.random({512, h, d});
            const double scale = 1 / std::sqrt(static_cast<double>(d));
            const AttentionResult result = attention(q, k, v, places, places, scale);
            const AttentionGradients gradients = attention_backward(d_output, q, k, v, result, places, places, scale);
            std::vector<std::vector<double>> values;
            if (!on.computes()) return values;
            for (const Tensor& each : {result.output, result.log_sum_exp, gradients.q, gradients.k, gradients.v})
                values.push_back(read(each));
            return values;
        };
        gpu->restart_high_water();
        MetaDevice meta({.stands_for = traits()});
        const auto expected = run(cpu), actual = run(*gpu);
        (void)run(meta);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            EXPECT_LT(error_of(actual[i], expected[i]), 0.012) << heads << " " << kv_heads << " " << head_dim << " part " << i;
        }
        EXPECT_EQ(gpu->memory().high_water, meta.memory().high_water) << "a refusal takes more";
    }
}

TEST_F(GpuAttention, OfPackedHeadsIsFusedAndAgreesWithTheCpu) {
    runtime::CpuDevice cpu;
    const auto gpu = device(), other = device();  // which reads the plans that the first one's library wrote
    for (const PackedHeads& heads : {PackedHeads{4, 4, 64}, {4, 2, 64}, {8, 2, 128}, {4, 1, 128}}) {
        const Positions places = zigzag_positions(256, 2, 1, 0);
        const auto run = [&](Device& on) {
            Maker maker(on, Dtype::bf16);
            const Tensor packed = maker.random({512, heads.width()}), d_output = maker.random({512, heads.heads, heads.head_dim});
            const double scale = 1 / std::sqrt(static_cast<double>(heads.head_dim));
            rotary_in_place(packed, heads, places, heads.head_dim, {.base = 10000}, false);
            const AttentionResult result = packed_attention(packed, heads, places, scale);
            const Tensor gradient = packed_attention_backward(d_output, packed, heads, result, places, scale);
            std::vector<std::vector<double>> values;
            if (!on.computes()) return values;
            for (const Tensor& each : {packed, result.output, result.log_sum_exp, gradient}) values.push_back(read(each));
            return values;
        };
        gpu->restart_high_water();
        MetaDevice meta({.stands_for = traits()});
        const auto expected = run(cpu), actual = run(*gpu), again = run(*other);
        (void)run(meta);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            SCOPED_TRACE(fmt::format("{} heads over {}, part {}", heads.heads, heads.kv_heads, i));
            EXPECT_LT(error_of(actual[i], expected[i]), 0.012);
            if (i + 1 < expected.size())
                EXPECT_EQ(again[i], actual[i]) << "forward, by a plan that was read";
            else
                EXPECT_LT(error_of(again[i], expected[i]), 0.012) << "by a plan that was read";
        }
        EXPECT_EQ(gpu->memory().high_water, meta.memory().high_water) << "a refusal takes more";
    }
}

/// Rank 0 has later queries for all of rank 1's keys, rank 1 all queries for rank 0's earlier keys.
TEST_F(GpuAttention, OfZigzagSlicesAgreesWithTheCpuInEveryType) {
    runtime::CpuDevice cpu;
    for (const auto dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
        for (const int rank : {0, 1}) {
            const auto gpu = device();
            MetaDevice meta({.stands_for = gpu->traits()});
            const Positions queries = zigzag_positions(256, 2, 2, rank), keys = zigzag_positions(256, 2, 2, 1 - rank);
            const auto run = [&](Device& on) {
                Maker maker(on, dtype);
                const Tensor q = maker.random({256, 4, 64}), k = maker.random({256, 2, 64}), v = maker.random({256, 2, 64}),
                             d_output = maker.random({256, 4, 64});
                AttentionResult result = attention(q, k, v, queries, queries, 0.125);
                merge_attention(result, attention(q, k, v, queries, keys, 0.125));
                const AttentionGradients gradients = attention_backward(d_output, q, k, v, result, queries, keys, 0.125);
                std::vector<std::vector<double>> values;
                if (!on.computes()) return values;
                for (const Tensor& each : {result.output, result.log_sum_exp, gradients.q, gradients.k, gradients.v})
                    values.push_back(read(each));
                return values;
            };
            const auto expected = run(cpu), actual = run(*gpu);
            (void)run(meta);
            for (std::size_t i = 0; i < expected.size(); ++i)
                EXPECT_LT(error_of(actual[i], expected[i]), tolerance_of(dtype)) << "rank " << rank << " part " << i;
            EXPECT_EQ(gpu->memory().high_water, meta.memory().high_water) << "a refusal takes more";
        }
    }
}

class GpuMemory : public GpuTest {};

TEST_F(GpuMemory, RefusesMoreThanTheCardHasAndGoesOn) {
    const auto gpu = device();
    EXPECT_THROW((void)gpu->empty({std::int64_t{1} << 46}, Dtype::fp32, MemoryCategory::activations, "too much"), std::bad_alloc);
    const Tensor x = gpu->zeros({1000}, Dtype::fp32, MemoryCategory::activations, "x");
    fill(x, 2);
    EXPECT_EQ(sum_of_squares(x), 4000);
}

TEST_F(GpuMemory, OfACardThatIsFreeIsLessByWhatIsTaken) {
    const auto gpu = device();
    const std::int64_t before = module_->free_bytes(0);
    const std::int64_t whole = module_->cards().at(0).memory_bytes;
    EXPECT_LT(before, whole) << "there is a context";
    constexpr std::int64_t kTaken = std::int64_t{1} << 30;
    const Tensor x = gpu->empty({kTaken / 4}, Dtype::fp32, MemoryCategory::activations, "x");
    EXPECT_LE(module_->free_bytes(0), before - kTaken);
}

TEST_F(GpuMemory, AddsTheRanksArraysWithTheBitsOfTheHost) {
    const auto gpu = device();
    runtime::CpuDevice cpu;
    for (const auto dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
        Maker on_cpu(cpu, dtype), on_gpu(*gpu, dtype);
        std::vector<Tensor> host, card;
        std::vector<const std::byte*> from_host, from_card;
        for (int rank = 0; rank < 5; ++rank) {
            auto numbers = on_cpu.numbers(10007);
            for (auto& number : numbers) number /= 3;
            host.push_back(make(cpu, {10007}, dtype, numbers));
            card.push_back(make(*gpu, {10007}, dtype, numbers));
            from_host.push_back(static_cast<const std::byte*>(host.back().data()));
            from_card.push_back(static_cast<const std::byte*>(card.back().data()));
        }
        const Tensor expected = on_cpu.zeros({10007}), actual = on_gpu.zeros({10007});
        auto* const to_host = static_cast<std::byte*>(expected.data());
        auto* const to_card = static_cast<std::byte*>(actual.data());
        runtime::reduce_in_order(dtype, Reduction::average, from_host, std::span(&to_host, 1), 5, 10000);
        gpu->memory_operations()->reduce(dtype, Reduction::average, from_card, std::span(&to_card, 1), 5, 10000);
        gpu->memory_operations()->finish();
        EXPECT_EQ(read(actual), read(expected)) << to_string(dtype);
    }
}

}  // namespace
}  // namespace mgplan::tests::ops_test
