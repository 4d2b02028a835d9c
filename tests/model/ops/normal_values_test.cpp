// Normal values by key and counter: the same wherever an array is cut, and those that weights have always begun with.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "model/ops/elementwise.hpp"
#include "model/ops/normal_values.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"

namespace mgplan::model::normal_values_test {
namespace {

/// SplitMix64's finalizer.
std::uint64_t hashed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

/// Box and Muller's cosine of two uniform values of 53 bits.
double expected_value(std::uint64_t key, std::uint64_t counter) {
    const double u = (static_cast<double>(hashed(key ^ hashed(2 * counter)) >> 11U) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(hashed(key ^ hashed(2 * counter + 1)) >> 11U) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

class NormalDraws : public testing::Test {
protected:
    [[nodiscard]] Tensor drawn(const Shape& shape, Dtype dtype, const NormalDraw& draw) {
        Tensor values = device_.empty(shape, dtype, MemoryCategory::parameters, "values");
        fill_normal(values, draw);
        return values;
    }
    runtime::CpuDevice device_;
};

TEST_F(NormalDraws, AreByBoxAndMullerFromHashesOfKeyAndCounter) {
    const NormalDraw draw{.key = 77, .first = 5, .pitch = 100, .deviation = 0.02};
    std::vector<double> expected;
    for (std::uint64_t row = 0; row < 3; ++row) {
        for (std::uint64_t column = 0; column < 4; ++column) expected.push_back(0.02 * expected_value(77, 5 + 100 * row + column));
    }
    EXPECT_EQ(read(drawn({3, 4}, Dtype::fp64, draw)), expected);
}

TEST_F(NormalDraws, AreRoundedAsACopyOfWiderOnes) {
    const NormalDraw draw{.key = 1, .first = 0, .pitch = 9, .deviation = 0.02};
    const Tensor wide = drawn({50, 9}, Dtype::fp64, draw);
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const Tensor copied = device_.empty({50, 9}, dtype, MemoryCategory::parameters, "copy");
        copy(wide, copied);
        EXPECT_EQ(read(drawn({50, 9}, dtype, draw)), read(copied)) << to_string(dtype);
    }
}

// Enough values for several threads; any part of them, drawn alone, is the same.
TEST_F(NormalDraws, OfAPartAreThoseOfTheWhole) {
    const std::int64_t rows = 3000, columns = 1000;
    const NormalDraw draw{.key = 9, .first = 40, .pitch = columns, .deviation = 1};
    const auto whole = read(drawn({rows, columns}, Dtype::fp32, draw));
    NormalDraw part = draw;
    part.first = draw.first + 2000 * columns + 300;
    const auto some = read(drawn({7, 5}, Dtype::fp32, part));
    double sum = 0, squares = 0;
    for (const double value : whole) {
        sum += value;
        squares += value * value;
    }
    for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], whole[(2000 + i / 5) * columns + 300 + i % 5]);
    const auto count = static_cast<double>(whole.size());
    EXPECT_NEAR(sum / count, 0, 4 / std::sqrt(count));
    EXPECT_NEAR(squares / count, 1, 6 / std::sqrt(count));
}

}  // namespace
}  // namespace mgplan::model::normal_values_test
