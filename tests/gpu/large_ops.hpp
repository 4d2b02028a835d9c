#pragma once
// Ops on arrays of any size against closed forms: of more than 2^31 elements on a card, of few on the host. Marks at the far end show an
// index that was cut to 32 bits; sums of squares show an element that nobody wrote.

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/activation.hpp"
#include "model/ops/cross_entropy.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/embedding.hpp"
#include "model/ops/fp8_blocks.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "tests/model/ops/every_op.hpp"

namespace mgplan::tests {

inline model::Tensor filled_with(model::Device& device, const model::Shape& shape, double value) {
    const model::Tensor tensor = device.empty(shape, Dtype::bf16, model::MemoryCategory::activations, "large");
    model::fill(tensor, value);
    return tensor;
}

/// rows is even. All values are few powers of two together, so exact in bf16.
inline void check_elementwise(model::Device& device, std::int64_t rows, std::int64_t width) {
    const auto all = static_cast<double>(rows * width);
    const model::Tensor x = filled_with(device, {rows, width}, 1.5), sum = filled_with(device, {rows, width}, 2);
    model::fill(x.slice(rows - 1, rows), 5);
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
    const model::Tensor dx = model::norm_backward(y, x, weight, statistics, Normalization::rms_norm, sums, {});
    EXPECT_LT(model::sum_of_squares(dx), 1e-10 * static_cast<double>(rows * width)) << "but for a square root's last bit";
    const double expected = static_cast<double>(rows - 1) + 3;
    for (const double sum : model::read(sums)) ASSERT_NEAR(sum / expected, 1, 1e-5);
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
