// Small values that can be checked by hand, and naive formulas.

#include <algorithm>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/activation.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/philox.hpp"
#include "model/ops/rotary.hpp"
#include "model/ops/sinks.hpp"
#include "tests/model/ops/single_steps.hpp"
#include "tests/model/ops/support.hpp"

namespace mgplan::model::values_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Values : public ::testing::Test {
protected:
    runtime::CpuDevice device;
    Maker maker{device, Dtype::fp64};

    Tensor fp64(const Shape& shape, const std::vector<double>& list) { return make(device, shape, Dtype::fp64, list); }
};

TEST_F(Values, OfBf16RoundToNearestEven) {
    const auto rounded = [](float value) { return float(runtime::Bf16(value)); };
    EXPECT_EQ(rounded(1.0F), 1.0F);
    EXPECT_EQ(rounded(1.0F + 1.0F / 256), 1.0F) << "half way to 1 + 1/128: the even one";
    EXPECT_EQ(rounded(1.0F + 3.0F / 256), 1.0F + 1.0F / 64) << "half way: the even one";
    EXPECT_EQ(rounded(1.0F + 1.5F / 256), 1.0F + 1.0F / 128);
    EXPECT_TRUE(std::isinf(rounded(std::numeric_limits<float>::max())));
    EXPECT_TRUE(std::isinf(rounded(HUGE_VALF)));
    EXPECT_TRUE(std::isnan(rounded(std::nanf(""))));
    EXPECT_TRUE(std::isnan(rounded(std::bit_cast<float>(0x7fffffffU)))) << "a carry must not make it -0";
    EXPECT_TRUE(std::signbit(rounded(-0.0F)));
}

TEST_F(Values, OfMatmulAreThoseOfTheNaiveSumInEveryType) {
    struct Case {
        std::int64_t m, n, k;
    };
    // Odd sizes, an empty inner size, and for bf16 more than one tile each way.
    for (const auto [m, n, k] : {Case{1, 1, 1}, {3, 5, 7}, {2, 3, 0}, {0, 3, 2}, {261, 515, 3}, {5, 3, 1030}}) {
        for (const auto dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
            for (const Transposes t : {Transposes{false, false}, {true, false}, {false, true}, {true, true}}) {
                const Tensor a = maker.random(t.a ? Shape{k, m} : Shape{m, k}, dtype),
                             b = maker.random(t.b ? Shape{n, k} : Shape{k, n}, dtype);
                const auto x = read(a), y = read(b);
                std::vector<double> expected;
                for (std::int64_t i = 0; i < m; ++i) {
                    for (std::int64_t j = 0; j < n; ++j) {
                        double sum = 0;
                        for (std::int64_t l = 0; l < k; ++l) {
                            sum += x[static_cast<std::size_t>(t.a ? l * m + i : i * k + l)] *
                                   y[static_cast<std::size_t>(t.b ? j * k + l : l * n + j)];
                        }
                        expected.push_back(sum);
                    }
                }
                // Products of these numbers are exact in fp32, and so are sums of 1030 of them.
                const double tolerance = dtype == Dtype::bf16 ? 1.0 / 256 : 0;
                expect_close(read(matmul(a, b, t, "y")), expected, tolerance, "matmul");
                for (auto& value : expected) value += 0.5;
                const Tensor sums = maker.zeros({m, n}, dtype == Dtype::bf16 ? Dtype::fp32 : dtype);
                fill(sums, 0.5);
                matmul_accumulate(a, b, t, sums);
                expect_close(read(sums), expected, 0, "matmul_accumulate");
            }
        }
    }
}

TEST_F(Values, OfMatmulTakeLeadingDimensionsAsRows) {
    const Tensor a = maker.random({2, 3, 4}), b = maker.random({4, 5});
    const Tensor y = matmul(a, b, {}, "y");
    EXPECT_EQ(y.shape(), (Shape{6, 5}));
    EXPECT_EQ(read(y), read(matmul(a.view({6, 4}), b, {}, "y")));
}

TEST_F(Values, OfBf16SumsAreRoundedOnce) {
    // 1 + 2^-9 + 2^-9 is 1 + 2^-8, half way between 1 and 1 + 2^-7; with another 2^-9 it must round up. Rounding after
    // every addition would stay at 1.
    const Tensor a = make(device, {1, 4}, Dtype::bf16, {1, 1, 1, 1});
    const Tensor b = make(device, {4, 1}, Dtype::bf16, {1, 1.0 / 512, 1.0 / 512, 1.0 / 512});
    EXPECT_THAT(read(matmul(a, b, {}, "y")), ElementsAre(1 + 1.0 / 128));
    const Tensor rows = make(device, {4, 1}, Dtype::bf16, {1, 1.0 / 512, 1.0 / 512, 1.0 / 512}), sum = maker.zeros({1}, Dtype::bf16);
    bias_gradient(rows, sum);
    EXPECT_THAT(read(sum), ElementsAre(1 + 1.0 / 128));
}

TEST_F(Values, OfCastsAreScaledToTheLargestOfTheirType) {
    const auto cast = [&](const std::vector<double>& values, Dtype dtype) {
        const Tensor x = make(device, {std::ssize(values)}, Dtype::bf16, values);
        const Fp8Tensor made{device.empty(x.shape(), dtype, MemoryCategory::activations, "codes"), make(device, {2}, Dtype::fp32, {5, 5})};
        find_largest(x, made.scale);
        quantise(x, made);
        std::vector<std::uint8_t> codes(values.size());
        device.read(made.codes, codes.data());
        return std::pair(codes, read(made.scale));
    };
    // 448 / 7 = 64: -7 is the largest; 64 and 32 are normal; 1/32 · 64 = 2; 0.01 · 64 is between 0.625 and 0.6875.
    const auto [codes, scale] = cast({-7, 1, 0.5, 0.03125, 0, 0.01}, Dtype::fp8);
    EXPECT_THAT(codes, ElementsAre(0xfe, 0x68, 0x60, 0x40, 0x00, 0x32));
    EXPECT_THAT(scale, ElementsAre(7, 1.0 / 64));
    const auto [gradients, gradient_scale] = cast({3.5, -0.4375}, Dtype::e5m2);  // 57344 / 3.5 = 16384
    EXPECT_THAT(gradients, ElementsAre(0x7b, 0xef));
    EXPECT_THAT(gradient_scale, ElementsAre(3.5, 1.0 / 16384));
    // Nothing to scale by; a NaN is no magnitude, and stays one.
    EXPECT_THAT(cast({0, 0}, Dtype::fp8).second, ElementsAre(0, 1));
    EXPECT_THAT(cast({kNan, 7}, Dtype::fp8).first, ElementsAre(0x7f, 0x7e));
    EXPECT_THAT(cast({-kInfinity, 1}, Dtype::fp8).first, ElementsAre(0xfe, 0x38));
}

TEST_F(Values, OfNormsHaveMeanZeroAndDeviationOne) {
    NormStatistics statistics;
    const Tensor x = fp64({1, 4}, {1, 2, 3, 6}), weight = fp64({4}, {1, 1, 2, 1}), bias = fp64({4}, {0, 0, 0, 10});
    const double inverse = 1 / std::sqrt(3.5);  // mean 3, squares 4 + 1 + 0 + 9
    expect_close(read(norm(x, weight, bias, Normalization::layer_norm, 0, statistics)), {-2 * inverse, -inverse, 0, 10 + 3 * inverse},
                 1e-15, "LayerNorm");
    EXPECT_THAT(read(statistics.mean), ElementsAre(3));
    const double root = 1 / std::sqrt(12.5);
    expect_close(read(norm(x, weight, {}, Normalization::rms_norm, 0, statistics)), {root, 2 * root, 6 * root, 6 * root}, 1e-15, "RMSNorm");
    EXPECT_FALSE(statistics.mean.defined());
    expect_close(read(norm(fp64({1, 4}, {0, 0, 0, 0}), weight, {}, Normalization::rms_norm, 1e-6, statistics)), {0, 0, 0, 0}, 0, "zeros");
}

// gelu(1) in its tanh form and silu(1), from the definitions.
TEST_F(Values, OfActivationsAreTheirDefinitions) {
    const double u = std::sqrt(2 / M_PI) * 1.044715;
    const Tensor x = fp64({1, 2}, {1, -2});
    EXPECT_NEAR(read(activation(x, Activation::gelu, false))[0], 0.5 * (1 + std::tanh(u)), 1e-15);
    EXPECT_NEAR(read(activation(x, Activation::silu, false))[0], 1 / (1 + std::exp(-1.0)), 1e-15);
    EXPECT_THAT(read(activation(x, Activation::relu, false)), ElementsAre(1, 0));
    EXPECT_THAT(read(activation(fp64({2}, {3, -3}), Activation::squared_relu, false)), ElementsAre(9, 0));
    EXPECT_THAT(read(activation(fp64({1, 4}, {2, -1, 5, 7}), Activation::relu, true)), ElementsAre(10, 0));
    EXPECT_THAT(read(weighted_activation(fp64({2, 2}, {2, 5, 3, 7}), fp64({2}, {0.5, 2}), Activation::relu, true)), ElementsAre(5, 42));
    EXPECT_EQ(activation(maker.zeros({0, 4}), Activation::silu, true).shape(), (Shape{0, 2})) << "an expert without tokens";
    for (const auto dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16}) {
        const auto far = read(activation(make(device, {2}, dtype, {-1000, 1000}), Activation::silu, false));
        EXPECT_THAT(far, ElementsAre(0, far[1]));
        EXPECT_NEAR(far[1], 1000, 0.003 * 1000);
    }
}

TEST_F(Values, OfCopiesConvertAndElementwiseOpsAccumulate) {
    const Tensor wide = fp64({3}, {1, 1.0 + 1.0 / 256, -2.5}), narrow = maker.zeros({3}, Dtype::bf16), sums = maker.zeros({3}, Dtype::fp32);
    copy(wide, narrow);
    EXPECT_THAT(read(narrow), ElementsAre(1, 1, -2.5));
    add(narrow, sums);
    add(narrow, sums);
    scale(sums, 0.5);
    EXPECT_THAT(read(sums), ElementsAre(1, 1, -2.5));
    EXPECT_EQ(sum_of_squares(sums), 1 + 1 + 6.25);
    fill(narrow, 3);
    EXPECT_THAT(read(narrow), Each(3));
    std::vector<double> ramp(19);
    std::iota(ramp.begin(), ramp.end(), 1.0);
    EXPECT_EQ(sum_of_squares(fp64({19}, ramp)), 19 * 20 * 39 / 6);
}

TEST_F(Values, OfColumnsAndSwappedDimensionsKeepTheirPlaces) {
    for (const auto dtype : {Dtype::fp64, Dtype::bf16, Dtype::int32}) {
        const Tensor x = make(device, {2, 4}, dtype, {0, 1, 2, 3, 4, 5, 6, 7});
        const Tensor part = columns(x, 1, 3);
        EXPECT_THAT(read(part), ElementsAre(1, 2, 5, 6));
        set_columns(part, x, 2);
        EXPECT_THAT(read(x), ElementsAre(0, 1, 1, 2, 4, 5, 5, 6));
        EXPECT_EQ(columns(x, 2, 2).shape(), (Shape{2, 0}));
    }
    const Tensor x = fp64({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    EXPECT_THAT(read(swap_leading(x)), ElementsAre(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11));
}

TEST_F(Values, OfEmbeddingsOutsideTheShardAreZero) {
    const Tensor table = fp64({2, 2}, {1, 2, 3, 4});
    EXPECT_THAT(read(embedding(maker.ids({4, 5, 6, 3, -1}, {5}), table, 4)), ElementsAre(1, 2, 3, 4, 0, 0, 0, 0, 0, 0));
}

TEST_F(Values, OfCrossEntropyIgnorePaddingAndKeepNan) {
    const Tensor targets = maker.ids({1, 0}, {2}), logits = fp64({2, 3}, {0, std::log(3.0), 99, 5, 5, 99});
    const VocabularyShard shard{0, 2};
    const Tensor maximum = row_maximum(logits, shard);
    EXPECT_THAT(read(maximum), ElementsAre(std::log(3.0), 5));
    expect_close(read(token_losses(softmax_sums(logits, targets, maximum, shard), targets)), {std::log(4.0 / 3), std::log(2.0)}, 1e-15,
                 "losses");
    const Tensor sums = maker.zeros({2}, Dtype::fp64);
    for (const Dtype dtype : {Dtype::fp64, Dtype::fp32}) add_sum_of_losses(make(device, {3}, dtype, {1, 2.5, 0.25}), sums, 1);
    EXPECT_THAT(read(sums), ElementsAre(0, 7.5));
    EXPECT_THAT(read(row_maximum(logits, {0, 0})), Each(-kInfinity)) << "a shard of nothing but padding";
    EXPECT_THAT(read(softmax_sums(logits, targets, maximum, {7, 0}).exponentials), Each(0));
    EXPECT_TRUE(std::isnan(read(row_maximum(fp64({1, 3}, {kNan, 1, 2}), {0, 3}))[0]));
    EXPECT_TRUE(std::isnan(read(row_maximum(fp64({1, 3}, {1, 2, kNan}), {0, 3}))[0]));
    const Tensor far = make(device, {1, 2}, Dtype::fp32, {-1e4, 1e4}), target = maker.ids({0}, {1});
    EXPECT_THAT(read(token_losses(softmax_sums(far, target, row_maximum(far, {0, 2}), {0, 2}), target)), ElementsAre(2e4));
}

/// Attention by its definition, all scores at once, over the keys given.
std::vector<double> naive_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Positions& queries, const Positions& keys,
                                    double scale, std::vector<double>& log_sum_exp, std::int64_t window = 0) {
    const auto x = read(q), y = read(k), z = read(v);
    const auto heads = q.shape()[1], kv_heads = k.shape()[1], width = q.shape()[2], v_width = v.shape()[2], batch = queries.batch;
    std::vector<double> output;
    for (std::int64_t row = 0; row < queries.rows(); ++row) {
        for (std::int64_t head = 0; head < heads; ++head) {
            const std::int64_t kv_head = head / (heads / kv_heads);
            std::vector<double> sums(static_cast<std::size_t>(v_width));
            double total = 0;
            for (std::int64_t other = row % batch; other < keys.rows(); other += batch) {
                const std::int64_t before = queries.at(row / batch) - keys.at(other / batch);
                if (before < 0 || (window > 0 && before >= window)) continue;
                double score = 0;
                for (std::int64_t i = 0; i < width; ++i) {
                    score += x[static_cast<std::size_t>((row * heads + head) * width + i)] *
                             y[static_cast<std::size_t>((other * kv_heads + kv_head) * width + i)];
                }
                const double weight = std::exp(score * scale);
                total += weight;
                for (std::int64_t i = 0; i < v_width; ++i) {
                    sums[static_cast<std::size_t>(i)] += weight * z[static_cast<std::size_t>((other * kv_heads + kv_head) * v_width + i)];
                }
            }
            for (const double sum : sums) output.push_back(total == 0 ? 0 : sum / total);
            log_sum_exp.push_back(std::log(total));
        }
    }
    return output;
}

TEST_F(Values, OfAttentionAreThoseOfTheDefinition) {
    struct Case {
        std::int64_t sequence, batch, heads, kv_heads, width, v_width;
    };
    for (const auto& c : {Case{2, 1, 1, 1, 1, 1},
                          {6, 3, 4, 2, 3, 5},
                          {7, 2, 2, 1, 3, 2},
                          {129, 1, 1, 1, 2, 2},
                          {130, 2, 3, 1, 7, 4},
                          {128, 1, 2, 2, 8, 8}}) {
        const Positions positions = zigzag_positions(c.sequence, c.batch, 1, 0);
        const Tensor q = maker.random({positions.rows(), c.heads, c.width}), k = maker.random({positions.rows(), c.kv_heads, c.width});
        const Tensor v = maker.random({positions.rows(), c.kv_heads, c.v_width});
        std::vector<double> log_sum_exp;
        const auto expected = naive_attention(q, k, v, positions, positions, 0.9, log_sum_exp);
        const auto result = attention(q, k, v, positions, positions, 0.9);
        expect_close(read(result.output), expected, 1e-14, "output");
        expect_close(read(result.log_sum_exp), log_sum_exp, 1e-14, "log-sum-exp");
    }
}

TEST_F(Values, OfAttentionWithinAWindowAreThoseOfTheDefinition) {
    for (const std::int64_t window : {1, 3, 64, 70, 200}) {
        const Positions positions = zigzag_positions(130, 2, 1, 0);
        const Tensor q = maker.random({260, 2, 3}), k = maker.random({260, 1, 3}), v = maker.random({260, 1, 4});
        std::vector<double> log_sum_exp;
        const auto expected = naive_attention(q, k, v, positions, positions, 0.9, log_sum_exp, window);
        const auto result = attention(q, k, v, positions, positions, 0.9, window);
        expect_close(read(result.output), expected, 1e-14, "output");
        expect_close(read(result.log_sum_exp), log_sum_exp, 1e-14, "log-sum-exp");
    }
    // A slice of the zigzag whose first chunk lies outside most windows.
    const Positions queries = zigzag_positions(24, 1, 2, 0), keys = zigzag_positions(24, 1, 2, 1);
    const Tensor q = maker.random({12, 1, 2}), k = maker.random({12, 1, 2}), v = maker.random({12, 1, 2});
    std::vector<double> log_sum_exp;
    const auto expected = naive_attention(q, k, v, queries, keys, 1.1, log_sum_exp, 5);
    expect_close(read(attention(q, k, v, queries, keys, 1.1, 5).output), expected, 1e-14, "a ring step");
}

TEST_F(Values, OfSinksAreOneMoreScoreWithoutAValue) {
    const Positions positions = zigzag_positions(3, 1, 1, 0);
    const Tensor q = maker.zeros({3, 2, 2}), k = maker.random({3, 2, 2}), v = fp64({3, 2, 1}, {1, 1, 2, 2, 6, 6});
    const AttentionResult result = attention(q, k, v, positions, positions, 1);
    add_sinks(result, fp64({2}, {0, std::log(3.0)}));
    // Scores are 0: row i sees i + 1 keys of weight 1 and a sink of weight 1 or 3.
    expect_close(read(result.output), {1.0 / 2, 1.0 / 4, 3.0 / 3, 3.0 / 5, 9.0 / 4, 9.0 / 6}, 1e-15, "output");
    expect_close(read(result.log_sum_exp), {std::log(2.0), std::log(4.0), std::log(3.0), std::log(5.0), std::log(4.0), std::log(6.0)},
                 1e-15, "log-sum-exp");
}

// Rank r of three sees parts of the sequence in ring order; merged, they are what one rank sees.
TEST_F(Values, OfAttentionMergeOverTheRing) {
    const std::int64_t sequence = 18, batch = 2, ranks = 3, rows = 2 * sequence / ranks;
    std::vector<Tensor> k, v;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        k.push_back(maker.random({rows, 2, 3}));
        v.push_back(maker.random({rows, 2, 3}));
    }
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const Positions queries = zigzag_positions(sequence, batch, ranks, rank);
        const Tensor q = maker.random({rows, 4, 3});
        // The definition, over all keys: weighted sums of the parts' sums.
        std::vector<double> expected(static_cast<std::size_t>(rows * 4 * 3)), totals(static_cast<std::size_t>(rows * 4));
        AttentionResult merged;
        for (std::int64_t step = 0; step < ranks; ++step) {
            const auto from = static_cast<std::size_t>((rank + step) % ranks);
            const Positions keys = zigzag_positions(sequence, batch, ranks, static_cast<std::int64_t>(from));
            std::vector<double> log_sum_exp;
            const auto part = naive_attention(q, k[from], v[from], queries, keys, 1.1, log_sum_exp);
            for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += part[i] * std::exp(log_sum_exp[i / 3]);
            for (std::size_t i = 0; i < totals.size(); ++i) totals[i] += std::exp(log_sum_exp[i]);
            const auto result = attention(q, k[from], v[from], queries, keys, 1.1);
            expect_close(read(result.output), part, 1e-14, "ring step");
            if (step == 0) merged = result;
            if (step > 0) merge_attention(merged, result);
        }
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] /= totals[i / 3];
        for (auto& total : totals) total = std::log(total);
        expect_close(read(merged.output), expected, 1e-14, "merged output");
        expect_close(read(merged.log_sum_exp), totals, 1e-14, "merged log-sum-exp");
    }
}

TEST_F(Values, OfAttentionWithoutVisibleKeysAreZero) {
    const Positions early{2, {0, 2}, 1}, late{2, {4, 6}, 1};
    const Tensor q = maker.random({4, 1, 2}), k = maker.random({4, 1, 2}), v = maker.random({4, 1, 2});
    AttentionResult nothing = attention(q, k, v, early, late, 1);
    EXPECT_THAT(read(nothing.output), Each(0));
    EXPECT_THAT(read(nothing.log_sum_exp), Each(-kInfinity));
    merge_attention(nothing, attention(q, k, v, early, late, 1));
    EXPECT_THAT(read(nothing.log_sum_exp), Each(-kInfinity)) << "nothing and nothing is nothing, not NaN";
    const auto gradients = attention_backward(q, q, k, v, nothing, early, late, 1);
    EXPECT_THAT(read(gradients.q), Each(0));
    EXPECT_THAT(read(gradients.k), Each(0));
    const AttentionResult some = attention(q, k, v, early, early, 1);
    merge_attention(nothing, some);
    EXPECT_EQ(read(nothing.output), read(some.output));
    EXPECT_EQ(read(nothing.log_sum_exp), read(some.log_sum_exp));
}

TEST_F(Values, OfRotaryTurnByPosition) {
    const Positions positions{1, {0, 3}, 1};  // positions 0 and 3
    const Tensor x = fp64({2, 1, 5}, {1, 2, 3, 4, 5, 1, 2, 3, 4, 5});
    const double a = 3, b = 3 * std::pow(10000.0, -0.5);
    expect_close(read(rotary(x, positions, 4, {.base = 10000}, false)),
                 {1, 2, 3, 4, 5, std::cos(a) - 3 * std::sin(a), 2 * std::cos(b) - 4 * std::sin(b), 3 * std::cos(a) + std::sin(a),
                  4 * std::cos(b) + 2 * std::sin(b), 5},
                 1e-15, "rotary");
    expect_close(read(rotary(rotary(x, positions, 4, {.base = 10000}, false), positions, 4, {.base = 10000}, true)), read(x), 1e-15,
                 "there and back");
}

// Known answers of the authors (Random123, tests/kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
    using Words = std::array<std::uint32_t, 4>;
    EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(philox({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST_F(Values, OfDropoutDoNotDependOnTheLayout) {
    const std::int64_t sequence = 16, batch = 4, width = 7;
    const auto ones = [&](std::int64_t rows) {
        return fp64({rows, width}, std::vector<double>(static_cast<std::size_t>(rows * width), 1));
    };
    DropoutPlace place{.probability = 0.3, .seed = 11, .stream = 5, .positions = zigzag_positions(sequence, batch, 1, 0)};
    const auto whole = read(dropout_add(ones(sequence * batch), maker.zeros({sequence * batch, width}), place));
    const auto kept = std::count_if(whole.begin(), whole.end(), [](double value) { return value != 0; });
    EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(whole.size()), 0.7, 0.06);
    for (const double value : whole) EXPECT_TRUE(value == 0 || value == 1 / 0.7) << value;

    // The same tokens on two context ranks, two sequence-parallel ranks each, two microbatches of two sequences.
    for (std::int64_t context = 0; context < 2; ++context) {
        for (std::int64_t part = 0; part < 2; ++part) {
            for (std::int64_t micro = 0; micro < 2; ++micro) {
                DropoutPlace other = place;
                other.positions = zigzag_positions(sequence, 2, 2, context);
                const std::int64_t rows = other.positions.rows() / 2;
                other.first_row = part * rows;
                other.first_sequence = 2 * micro;
                const auto piece = read(dropout_add(ones(rows), maker.zeros({rows, width}), other));
                for (std::int64_t row = 0; row < rows; ++row) {
                    const std::int64_t position = other.positions.at((other.first_row + row) / 2), sequence_index = 2 * micro + row % 2;
                    for (std::int64_t i = 0; i < width; ++i) {
                        ASSERT_EQ(piece[static_cast<std::size_t>(row * width + i)],
                                  whole[static_cast<std::size_t>((position * batch + sequence_index) * width + i)]);
                    }
                }
            }
        }
    }
    place.stream = 6;
    EXPECT_NE(read(dropout_add(ones(sequence * batch), maker.zeros({sequence * batch, width}), place)), whole);
}

// One step from zero moments moves every weight by the rate against the gradient's sign, whatever its size.
TEST_F(Values, OfAdamMoveByTheRateAndDecay) {
    const Tensor w = fp64({3}, {1, 2, 3}), m = maker.zeros({3}), v = maker.zeros({3}), g = fp64({3}, {4, -0.5, 1e-3});
    adam_step(w, m, v, g,
              {.learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0, .weight_decay = 0.5, .step = 1, .gradient_factor = 2});
    expect_close(read(w), {1 - 0.1 - 0.05, 2 + 0.1 - 0.1, 3 - 0.1 - 0.15}, 1e-14, "weights");
    expect_close(read(m), {0.8, -0.1, 2e-4}, 1e-14, "first moments");
    expect_close(read(v), {0.64, 0.01, 4e-8}, 1e-14, "second moments");
    // Second step, by the formulas.
    adam_step(w, m, v, g, {.learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1, .step = 2});
    const double first = (0.9 * 0.8 + 0.1 * 4) / (1 - 0.81), second = (0.99 * 0.64 + 0.01 * 16) / (1 - 0.9801);
    EXPECT_NEAR(read(w)[0], 0.85 - 0.1 * first / (std::sqrt(second) + 1), 1e-14);
    const Tensor main = maker.zeros({3}, Dtype::fp32), m32 = maker.zeros({3}, Dtype::fp32), v32 = maker.zeros({3}, Dtype::fp32);
    adam_step(main, m32, v32, make(device, {3}, Dtype::bf16, {1, -1, 0}), {.learning_rate = 0.5});
    expect_close(read(main), {-0.5, 0.5, 0}, 1e-6, "fp32 from bf16");
}

// The same bits as a copy of the main parameters behind the step.
TEST_F(Values, OfAdamsParametersAreTheMainOnesRounded) {
    const Tensor main = make(device, {3}, Dtype::fp32, {1.00390625, -3.1, 0.1}), m = maker.zeros({3}, Dtype::fp32),
                 v = maker.zeros({3}, Dtype::fp32), parameter = maker.zeros({3}, Dtype::bf16), copied = maker.zeros({3}, Dtype::bf16);
    adam_step(main, m, v, make(device, {3}, Dtype::fp32, {0, 1, -1}), {.learning_rate = 0.25}, parameter);
    copy(main, copied);
    EXPECT_EQ(read(parameter), read(copied));
    EXPECT_EQ(read(parameter)[0], 1) << "half of the last bit goes to the even neighbour";
    EXPECT_NE(read(parameter)[1], read(main)[1]);
}

// 16-bit moments are rounded to 8 bits when they are stored; the step itself is made from the unrounded ones.
TEST_F(Values, OfAdamWithNarrowMomentsAreRoundedWhenStored) {
    for (const auto& [first, second] : {std::pair{Dtype::bf16, Dtype::bf16}, {Dtype::bf16, Dtype::fp32}, {Dtype::fp32, Dtype::bf16}}) {
        const Tensor w = maker.zeros({1}, Dtype::fp32), m = maker.zeros({1}, first), v = maker.zeros({1}, second);
        const AdamHyperparameters hyper{.learning_rate = 0.5, .beta1 = 0.5, .beta2 = 0.5, .epsilon = 0};
        adam_step(w, m, v, make(device, {1}, Dtype::fp32, {1.01}), hyper);
        expect_close(read(w), {-0.5}, 1e-6, "weights");
        // 0.505 and 0.51005; multiples of 2^-8 between 0.5 and 1.
        expect_close(read(m), {first == Dtype::bf16 ? 129.0 / 256 : 0.505}, 1e-6, "first moments");
        expect_close(read(v), {second == Dtype::bf16 ? 131.0 / 256 : 0.51005}, 1e-6, "second moments");
    }
}

// torch.optim.SGD adds the decay to the gradient, and the momentum is a sum.
TEST_F(Values, OfSgdMoveByTheMomentum) {
    const Tensor w = fp64({2}, {1, -2}), m = fp64({2}, {0.5, 0}), g = fp64({2}, {0.1, 0.2});
    momentum_step(w, m, g, {.learning_rate = 0.1, .beta1 = 0.9, .weight_decay = 0.5, .gradient_factor = 2});
    expect_close(read(m), {0.45 + 0.2 + 0.5, 0.4 - 1}, 1e-15, "momentum");
    expect_close(read(w), {1 - 0.115, -2 + 0.06}, 1e-15, "weights");
}

// arXiv 2302.06675, algorithm 2: the sign of one mean moves the weight, another one is kept.
TEST_F(Values, OfLionMoveByTheSign) {
    const Tensor w = fp64({3}, {1, 2, 3}), m = fp64({3}, {1, -1, 0}), g = fp64({3}, {-8, -1, 0});
    momentum_step(w, m, g, {.rule = MomentumRule::lion, .learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.5});
    expect_close(read(m), {0.99 - 0.08, -1, 0}, 1e-15, "momentum");
    // 0.9 - 0.8 is above 0 although the gradient is far below.
    expect_close(read(w), {1 - 0.1 - 0.05, 2 + 0.1 - 0.1, 3 - 0.15}, 1e-15, "weights");
}

TEST(Positions, OfTheZigzagCoverTheSequenceOnce) {
    std::vector<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < 3; ++rank) {
        const Positions positions = zigzag_positions(12, 1, 3, rank);
        for (std::int64_t place = 0; place < 4; ++place) seen.push_back(positions.at(place));
    }
    EXPECT_THAT(seen, ElementsAre(0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7));
    EXPECT_THROW((void)zigzag_positions(14, 1, 3, 0), std::logic_error);
    EXPECT_EQ(zigzag_positions(13, 2, 1, 0).rows(), 26) << "one rank takes any length";
    EXPECT_EQ(zigzag_positions(13, 2, 1, 0).at(12), 12);
}

}  // namespace
}  // namespace mgplan::model::values_test
