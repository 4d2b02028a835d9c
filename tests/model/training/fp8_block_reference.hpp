#pragma once
// The model of fp8_reference.hpp with a scale for each block of values, by plain loops from the formulas: values are cast along the way
// that the product sums, so that a gradient of a weight reads other casts than the forward does. All is e4m3.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

#include "tests/model/training/fp8_reference.hpp"

namespace mgplan::tests::fp8_reference {

/// What values are multiplied with in front of the cast: the largest power of two that keeps the largest of them within the format.
inline double power_of_two_scale(double largest) {
    if (largest == 0) return 1;
    int exponent = 0;
    (void)std::frexp(kE4m3.largest / largest, &exponent);
    return std::ldexp(1.0, exponent - 1);
}

/// The values that codes stand for, blocks of (high, wide) values from the first row and column on.
inline Matrix in_blocks(const Matrix& x, std::size_t high, std::size_t wide) {
    Matrix values = x;
    for (std::size_t row = 0; row < x.rows; row += high) {
        for (std::size_t column = 0; column < x.columns; column += wide) {
            const std::size_t end_row = std::min(row + high, x.rows), end_column = std::min(column + wide, x.columns);
            double largest = 0;
            for (std::size_t i = row; i < end_row; ++i) {
                for (std::size_t j = column; j < end_column; ++j)
                    largest = std::max(largest, std::abs(static_cast<double>(static_cast<float>(x.at(i, j)))));
            }
            const double scale = power_of_two_scale(largest);
            for (std::size_t i = row; i < end_row; ++i) {
                for (std::size_t j = column; j < end_column; ++j)
                    values.at(i, j) = rounded(static_cast<float>(x.at(i, j)) * scale, kE4m3) / scale;
            }
        }
    }
    return values;
}

/// Of vectors of `length` along what the product sums; weights in squares of as many, or like all else.
[[nodiscard]] inline std::function<Cast(bool weight, const Matrix& x)> block_casts(std::size_t length, bool squares) {
    return [length, squares](bool weight, const Matrix& x) {
        if (weight && squares) return Cast{in_blocks(x, length, length)};
        return Cast{in_blocks(x, 1, length), 1, in_blocks(x, length, 1)};
    };
}

}  // namespace mgplan::tests::fp8_reference
