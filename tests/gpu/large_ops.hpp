#pragma once
// Ops on arrays of any size against closed forms: of more than 2^31 elements on a card, of few on the host. Marks at the far end show an
// index that was cut to 32 bits; sums of squares show an element that nobody wrote.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/activation.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/delta_rule.hpp"
#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/fp8.hpp"
#include "model/ops/fp8_blocks.hpp"
#include "model/ops/fp8_history.hpp"
#include "model/ops/latent_keys.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "model/ops/router.hpp"
#include "tests/model/ops/every_op.hpp"

namespace mgplan::tests {

inline model::Tensor filled_with(model::Device& device, const model::Shape& shape, double value) {
    model::Tensor tensor = device.empty(shape, Dtype::bf16, model::MemoryCategory::activations, "large");
    model::fill(tensor, value);
    return tensor;
}

/// rows is even. All values are few powers of two together, so exact in bf16.
inline void check_elementwise(model::Device& device, std::int64_t rows, std::int64_t width) {
    const auto all = static_cast<double>(rows * width);
    const model::Tensor x = filled_with(device, {rows, width}, 1.5), sum = filled_with(device, {rows, width}, 2);
    model::fill(x.slice(rows - 1, rows), 5);
    EXPECT_EQ(model::sum_of_squares(model::dropout_add(x, sum, {})),
              12.25 * (all - static_cast<double>(width)) + 49 * static_cast<double>(width));
    model::add(x, sum);
    model::scale(sum, 2);  // 7, and 14 in the last row
    EXPECT_EQ(model::sum_of_squares(sum), 49 * (all - static_cast<double>(width)) + 196 * static_cast<double>(width));
    model::fill(x, 0);
    model::copy(sum, x);
    EXPECT_EQ(model::read(x.slice(rows - 1, rows)), std::vector<double>(static_cast<std::size_t>(width), 14.0));
    model::fill(x.slice(rows - 1, rows), std::nan(""));
    EXPECT_TRUE(std::isnan(model::sum_of_squares(x))) << "in the last row";
    // (2, rows / 2, width) -> (rows / 2, 2, width): the second half's last row stays the last.
    const model::Tensor swapped = model::swap_leading(sum.view({2, rows / 2, width}));
    EXPECT_EQ(model::read(swapped.view({rows, width}).slice(rows - 1, rows)), std::vector<double>(static_cast<std::size_t>(width), 14.0));
    EXPECT_EQ(model::sum_of_squares(swapped), model::sum_of_squares(sum));
}

/// All logits alike: every probability is 1 / vocabulary.
inline void check_losses(model::Device& device, std::int64_t rows, std::int64_t vocabulary) {
    const model::Tensor logits = filled_with(device, {rows, vocabulary}, 0.25);
    const std::vector<double> last(static_cast<std::size_t>(rows), static_cast<double>(vocabulary - 1));
    const model::Tensor targets = model::make(device, {rows}, Dtype::int32, last), maximum = model::row_maximum(logits, {0, vocabulary});
    const auto v = static_cast<double>(vocabulary), count = static_cast<double>(rows);
    const model::SoftmaxSums sums = model::softmax_sums(logits, targets, maximum, {0, vocabulary});
    EXPECT_EQ(model::read(sums.exponentials), std::vector<double>(static_cast<std::size_t>(rows), v));
    for (const double loss : model::read(model::token_losses(sums, targets))) ASSERT_NEAR(loss, std::log(v), 1e-5 * std::log(v));
    model::cross_entropy_backward(logits, targets, maximum, sums.exponentials, {0, vocabulary}, 1);
    const double expected = count * ((v - 1) / (v * v) + (1 - 1 / v) * (1 - 1 / v));
    EXPECT_NEAR(model::sum_of_squares(logits), expected, 0.01 * expected);
    EXPECT_NEAR(model::read(logits.slice(rows - 1, rows)).back(), 1 / v - 1, 0.01) << "the target of the last row";
}

inline void check_table_and_product(model::Device& device, std::int64_t rows, std::int64_t width) {
    const model::Tensor table = filled_with(device, {rows, width}, 1);
    model::fill(table.slice(rows - 1, rows), 3);
    const model::Tensor ids = model::make(device, {2}, Dtype::int32, {static_cast<double>(rows - 1), 0});
    const std::vector<double> found = model::read(model::embedding(ids, table, 0));
    EXPECT_EQ(found.front(), 3);
    EXPECT_EQ(found[static_cast<std::size_t>(width) - 1], 3);
    EXPECT_EQ(found.back(), 1);
    constexpr std::int64_t kInner = 8;
    const model::Tensor a = filled_with(device, {rows, kInner}, 1), b = filled_with(device, {width, kInner}, 0.5);
    model::fill(a.slice(rows - 1, rows), 2);
    const model::Tensor product = model::matmul(a, b, {false, true}, "product");  // 4, and 8 in the last row
    EXPECT_EQ(model::sum_of_squares(product), 16.0 * static_cast<double>((rows - 1) * width) + 64.0 * static_cast<double>(width));
    EXPECT_EQ(model::read(product.slice(rows - 1, rows)).back(), 8);
}

/// Rows of equal values: an RMSNorm makes them 1, and no gradient comes through to them.
inline void check_norm(model::Device& device, std::int64_t rows, std::int64_t width) {
    const model::Tensor x = filled_with(device, {rows, width}, 2), weight = filled_with(device, {width}, 1);
    model::fill(x.slice(rows - 1, rows), 64);
    model::NormStatistics statistics;
    const model::Tensor y = model::norm(x, weight, {}, Normalization::rms_norm, 0, statistics);
    EXPECT_EQ(model::sum_of_squares(y), static_cast<double>(rows * width));
    const model::Tensor sums = device.zeros({width}, Dtype::fp32, model::MemoryCategory::gradients, "sums");
    model::fill(y.slice(rows - 1, rows), 3);  // from here on the gradient
    model::Tensor dx = model::norm_backward(y, x, weight, statistics, Normalization::rms_norm, sums, {});
    EXPECT_LT(model::sum_of_squares(dx), 1e-10 * static_cast<double>(rows * width)) << "but for a square root's last bit";
    const double expected = static_cast<double>(rows - 1) + 3;
    for (const double sum : model::read(sums)) ASSERT_NEAR(sum / expected, 1, 1e-5);
    dx = {};
    // Beside another gradient, for which the input stands in, nothing is left of it.
    dx = model::norm_backward(y, x, weight, statistics, Normalization::rms_norm, sums, {}, x);
    EXPECT_EQ(model::sum_of_squares(dx), model::sum_of_squares(x));
    EXPECT_EQ(model::read(dx.slice(rows - 1, rows)).back(), 64);
}

inline void check_biases(model::Device& device, std::int64_t rows, std::int64_t width) {
    const model::Tensor x = filled_with(device, {rows, width}, 1), bias = filled_with(device, {width}, 0.5);
    model::fill(x.slice(rows - 1, rows), 3);
    model::add_bias(x, bias);  // 1.5, and 3.5 in the last row
    EXPECT_EQ(model::sum_of_squares(x), 2.25 * static_cast<double>((rows - 1) * width) + 12.25 * static_cast<double>(width));
    const model::Tensor sums = device.zeros({width}, Dtype::fp32, model::MemoryCategory::gradients, "sums");
    model::bias_gradient(x, sums);
    EXPECT_EQ(model::read(sums), std::vector<double>(static_cast<std::size_t>(width), 1.5 * static_cast<double>(rows - 1) + 3.5));
}

/// First and last row change places, by blocks and one by one.
inline void check_moves(model::Device& device, std::int64_t rows, std::int64_t width) {
    const model::Tensor x = filled_with(device, {rows, width}, 2);
    model::fill(x.slice(0, 1), 1);
    model::fill(x.slice(rows - 1, rows), 3);
    const auto expect_ends = [&](const model::Tensor& tensor, double first, double last) {
        EXPECT_EQ(model::read(tensor.slice(0, 1)), std::vector<double>(static_cast<std::size_t>(width), first));
        EXPECT_EQ(model::read(tensor.slice(rows - 1, rows)), std::vector<double>(static_cast<std::size_t>(width), last));
        EXPECT_EQ(model::sum_of_squares(tensor), 4.0 * static_cast<double>((rows - 2) * width) + 10.0 * static_cast<double>(width));
    };
    model::Tensor moved = model::reorder_blocks(x, {1, rows - 2, 1}, {2, 1, 0});
    expect_ends(moved, 3, 1);
    moved = {};
    std::vector<double> source;
    for (std::int64_t row = rows; row-- > 0;) source.push_back(static_cast<double>(row));
    const model::Permutation reversed{model::make(device, {rows}, Dtype::int32, source)};
    moved = model::permute_rows(x, reversed, 1);
    expect_ends(moved, 3, 1);
    expect_ends(model::unpermute_rows(moved, reversed, rows, 1), 1, 3);
}

/// Keys of four heads that share eight values, beside eight values of each.
inline void check_latent_keys(model::Device& device, std::int64_t rows, std::int64_t width) {
    constexpr std::int64_t kHeads = 4, kShared = 8, kValues = 8;
    const std::int64_t own = width / kHeads - kValues;
    const double before = static_cast<double>(rows - 1), heads = kHeads;
    model::Tensor projected = filled_with(device, {rows, kHeads, own + kValues}, 1);
    const model::Tensor shared = filled_with(device, {rows, kShared}, 2);
    model::fill(projected.slice(rows - 1, rows), 3);
    model::fill(shared.slice(rows - 1, rows), 5);
    const model::LatentKeys keys = model::join_latent_keys(projected, shared, own);
    EXPECT_EQ(model::sum_of_squares(keys.k), heads * (static_cast<double>(own) * (before + 9) + kShared * (4 * before + 25)));
    EXPECT_EQ(model::sum_of_squares(keys.v), heads * kValues * (before + 9));
    const std::vector<double> last = model::read(keys.k.slice(rows - 1, rows));
    EXPECT_EQ(last[static_cast<std::size_t>(own) - 1], 3);
    EXPECT_EQ(last.back(), 5);
    projected = {};
    const model::LatentKeyGradients gradients = model::split_latent_keys(keys.k, keys.v, own);
    EXPECT_EQ(model::sum_of_squares(gradients.projected), heads * static_cast<double>(own + kValues) * (before + 9));
    EXPECT_EQ(model::read(gradients.projected.slice(rows - 1, rows)).back(), 3);
    EXPECT_EQ(model::sum_of_squares(gradients.shared), kShared * (64 * before + 400));
    EXPECT_EQ(model::read(gradients.shared.slice(rows - 1, rows)).back(), 20);
}

/// All queries, keys and values alike, half of a value written and half of a state kept: what a state gives for its key becomes a quarter
/// of that and half of the value. In the last row values are 4, and outputs have a gradient.
inline void check_delta_rule(model::Device& device, std::int64_t rows, std::int64_t key_heads, std::int64_t dim) {
    const model::DeltaRuleSizes sizes{
        .places = rows, .batch = 1, .key_heads = key_heads, .value_heads = 2 * key_heads, .key_dim = dim, .value_dim = dim};
    const auto zeros = [&](const model::Shape& shape, Dtype dtype) {
        return device.zeros(shape, dtype, model::MemoryCategory::activations, "zeros");
    };
    const model::Tensor mixed = filled_with(device, {rows, sizes.width()}, 1), heads = zeros({sizes.value_heads}, Dtype::bf16);
    model::fill(mixed.slice(rows - 1, rows).view({sizes.width()}).slice(2 * sizes.keys(), sizes.width()), 4);
    const model::DeltaRuleInputs in{mixed, zeros({rows, 2 * sizes.value_heads}, Dtype::bf16), 0, sizes.value_heads, heads, heads};
    constexpr double kBf16 = 1.0 / 32;
    const double root = std::sqrt(static_cast<double>(dim));
    double found = 0, squares = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
        found = found / 4 + (row + 1 < rows ? 0.5 : 2);
        squares += found * found / static_cast<double>(dim) * static_cast<double>(sizes.values());
    }
    model::Tensor y = model::delta_rule(in, sizes);
    EXPECT_NEAR(model::sum_of_squares(y) / squares, 1, kBf16);
    for (const double value : model::read(y.slice(rows - 1, rows))) ASSERT_NEAR(value * root / found, 1, kBf16);
    model::fill(y, 0);  // from here on the gradient
    model::fill(y.slice(rows - 1, rows), 2);
    const model::Tensor d_projected = zeros(in.projected.shape(), Dtype::bf16), d_bias = zeros({sizes.value_heads}, Dtype::fp32),
                        d_rates = zeros({sizes.value_heads}, Dtype::fp32);
    const model::Tensor dx = model::delta_rule_backward(y, in, sizes, d_projected, d_bias, d_rates);
    for (const std::int64_t back : {1, 2}) {
        const std::vector<double> last = model::read(dx.slice(rows - back, rows - back + 1));
        for (std::int64_t i = 2 * sizes.keys(); i < sizes.width(); ++i)
            ASSERT_NEAR(last[static_cast<std::size_t>(i)] * root * (back == 1 ? 1 : 4), 1, kBf16) << i;
    }
}

/// Each row holds one code.
template <class CodeOf>
void expect_codes(const model::Tensor& codes, CodeOf code_of) {
    const std::int64_t rows = codes.shape()[0], width = codes.shape()[1], stretch = 1000;
    std::vector<std::uint8_t> bytes;
    for (std::int64_t begin = 0; begin < rows; begin += stretch) {
        const model::Tensor part = codes.slice(begin, std::min(rows, begin + stretch));
        bytes.resize(static_cast<std::size_t>(part.elements()));
        codes.device().read(part, bytes.data());
        for (std::int64_t row = 0; row < part.shape()[0]; ++row) {
            const std::uint8_t* const first = bytes.data() + row * width;
            ASSERT_EQ(std::count(first, first + width, code_of(begin + row)), width) << "row " << begin + row;
        }
    }
}

/// Rows of 1.5, and of 7 in the end: by one scale, 448 / 7, they are 96 and 448; by those of blocks, powers of two, 1.5 is 384 where no 7
/// is in the block.
inline void check_casts(model::Device& device, std::int64_t rows, std::int64_t width) {
    constexpr std::uint8_t k96 = 0x6c, k384 = 0x7c, k448 = 0x7e;
    const auto by_one_scale = [&](std::int64_t row) { return row == rows - 1 ? k448 : k96; };
    const model::Tensor x = filled_with(device, {rows, width}, 1.5), last = x.slice(rows - 1, rows);
    model::fill(last, 7);
    const auto empty = [&](const model::Shape& shape, Dtype dtype) {
        return device.empty(shape, dtype, model::MemoryCategory::activations, "cast");
    };
    {
        const model::Fp8Tensor all{empty({rows, width}, Dtype::fp8), empty({model::kFp8ScaleElements}, Dtype::fp32)},
            part{empty({1, width}, Dtype::fp8), empty({model::kFp8ScaleElements}, Dtype::fp32)};
        model::find_all_largest(
            std::array{model::RaisedLargest{last, part.scale.slice(0, 1)}, model::RaisedLargest{x, all.scale.slice(0, 1)}});
        model::quantise_all(std::array{model::Fp8Cast{last, part}, model::Fp8Cast{x, all}});
        EXPECT_EQ(model::read(all.scale), (std::vector<double>{7, 1.0 / 64}));
        expect_codes(part.codes, [&](std::int64_t) { return k448; });
        expect_codes(all.codes, by_one_scale);
        const model::Tensor turned = model::transpose_codes(all.codes);
        std::vector<std::uint8_t> column(static_cast<std::size_t>(rows));
        for (const std::int64_t at : {std::int64_t{0}, width - 1}) {
            device.read(turned.slice(at, at + 1), column.data());
            EXPECT_EQ(std::count(column.begin(), column.end(), k96), rows - 1);
            EXPECT_EQ(column.back(), k448);
        }
    }
    {
        const model::Fp8Tensor alone{empty({rows, width}, Dtype::fp8), empty({model::kFp8ScaleElements}, Dtype::fp32)};
        model::find_largest(x, alone.scale);
        model::quantise(x, alone);
        expect_codes(alone.codes, by_one_scale);
    }
    const auto along_rows = [&](std::int64_t row) { return row == rows - 1 ? k448 : k384; };
    const auto by_last_block = [&](std::int64_t row) { return row == rows - 1 ? k448 : row / 128 == (rows - 1) / 128 ? k96 : k384; };
    expect_codes(model::quantise_rows(x, model::Fp8Scaling::vectors_of_128, "rows").codes, along_rows);
    expect_codes(model::quantise_columns(x, model::Fp8Scaling::vectors_of_128, model::ColumnCodes::as_rows, "columns").codes,
                 by_last_block);
    expect_codes(model::quantise_rows(x, model::Fp8Scaling::squares_of_128, "squares").codes, by_last_block);
}

/// SwiGLU of equal values: silu(2) · 2, and silu(8) · 8 in the last row.
inline void check_activation(model::Device& device, std::int64_t rows, std::int64_t width) {
    const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
    const auto slope = [](double v) { return (1 + v / (1 + std::exp(v))) / (1 + std::exp(-v)); };
    const model::Tensor x = filled_with(device, {rows, width}, 2);
    model::fill(x.slice(rows - 1, rows), 8);
    model::Tensor y = model::activation(x, Activation::silu, true);
    constexpr double kBf16 = 1.0 / 128;
    const auto expect_ends = [&](const model::Tensor& tensor, std::size_t at, double first, double last) {
        EXPECT_NEAR(model::read(tensor.slice(0, 1))[at] / first, 1, kBf16);
        EXPECT_NEAR(model::read(tensor.slice(rows - 1, rows))[at] / last, 1, kBf16);
    };
    const auto value = static_cast<std::size_t>(width) - 1;
    expect_ends(y, value / 2, 2 * silu(2), 8 * silu(8));
    const double all = static_cast<double>(width / 2);
    EXPECT_NEAR(model::sum_of_squares(y) / (all * (static_cast<double>(rows - 1) * std::pow(2 * silu(2), 2) + std::pow(8 * silu(8), 2))), 1,
                2 * kBf16);
    model::fill(y, 1);
    const model::Tensor dx = model::activation_backward(y, x, Activation::silu, true);
    expect_ends(dx, 0, 2 * slope(2), 8 * slope(8));
    expect_ends(dx, value, silu(2), silu(8));
}

/// A cast in blocks both ways, columns turned: 1.5, and 5 in the last row. 448 / 1.5 has 2^8 in it, 448 / 5 has 2^6 (OCP's e4m3: 1.5 · 2^8
/// is 0x7c, 5 · 2^6 is 0x7a, 1.5 · 2^6 is 0x6c).
inline void check_block_casts(model::Device& device, std::int64_t rows, std::int64_t width) {
    rows = rows / 16 * 16;  // turned in packs
    const model::Tensor x = filled_with(device, {rows, width}, 1.5);
    model::fill(x.slice(rows - 1, rows), 5);
    const model::Fp8BothWays cast =
        model::quantise_both_ways(x, model::Fp8Scaling::vectors_of_128, model::ColumnCodes::turned, "large rows", "large columns");
    const auto bytes_of = [&](const model::Tensor& codes) {
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(codes.bytes()));
        device.read(codes, bytes.data());
        return bytes;
    };
    const auto many = [](std::int64_t count, std::uint8_t code) {
        return std::vector<std::uint8_t>(static_cast<std::size_t>(count), code);
    };
    EXPECT_EQ(bytes_of(cast.rows.codes.slice(0, 1)), many(width, 0x7c));
    EXPECT_EQ(bytes_of(cast.rows.codes.slice(rows - 2, rows - 1)), many(width, 0x7c));
    EXPECT_EQ(bytes_of(cast.rows.codes.slice(rows - 1, rows)), many(width, 0x7a));
    // Of a column those of the block with the last row have its scale.
    const std::int64_t alone = (rows - 1) / 128 * 128;
    std::vector<std::uint8_t> column = many(alone, 0x7c);
    column.insert(column.end(), static_cast<std::size_t>(rows - alone - 1), 0x6c);
    column.push_back(0x7a);
    EXPECT_EQ(bytes_of(cast.columns.codes.slice(0, 1)), column);
    EXPECT_EQ(bytes_of(cast.columns.codes.slice(width - 1, width)), column);
    const std::vector<double> scales = model::read(cast.columns.scales);
    EXPECT_EQ(scales[0], alone > 0 ? 1.0 / 256 : 1.0 / 64);
    EXPECT_EQ(scales[static_cast<std::size_t>((rows - 1) / 128 * ((width + 3) / 4 * 4) + width - 1)], 1.0 / 64);
}

}  // namespace mgplan::tests
