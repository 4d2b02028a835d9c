#pragma once
// The model of fp8_reference.hpp with a scale for each block of values, by plain loops from the formulas: values are cast along the way
// that the product sums, so that a gradient of a weight reads other casts than the forward does. All is e4m3.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

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

struct BlockSizes {
    std::size_t length = 128;
    bool squares = true;  ///< of weights; else those are cast along the sum too
};

class BlockModel final : public Model {
public:
    BlockModel(Sizes sizes, std::vector<Weights> ranks, BlockSizes blocks) : Model(std::move(sizes), std::move(ranks)), blocks_(blocks) {}

private:
    [[nodiscard]] Matrix along_rows(const Matrix& x) const { return in_blocks(x, 1, blocks_.length); }
    [[nodiscard]] Matrix along_columns(const Matrix& x) const { return in_blocks(x, blocks_.length, 1); }

    [[nodiscard]] Matrix linear(std::size_t rank, const std::string& layer, const Matrix& x) const override {
        const Matrix& whole = ranks_[rank].at(layer + ".weight");
        const Matrix weight = blocks_.squares ? in_blocks(whole, blocks_.length, blocks_.length) : along_rows(whole);
        Matrix y(x.rows, weight.rows);
        for (const auto& part : sizes_.parts) set_rows(y, part, plain_product(along_rows(rows_of(x, part)), weight));
        return y;
    }
    Matrix linear_backward(std::size_t rank, const std::string& layer, const Matrix& x, const Matrix& dy) override {
        const Matrix& whole = ranks_[rank].at(layer + ".weight");
        const Matrix weight = blocks_.squares ? in_blocks(whole, blocks_.length, blocks_.length) : along_columns(whole);
        Matrix dx(x.rows, x.columns);
        for (const auto& part : sizes_.parts) {
            const Matrix gradient = rows_of(dy, part), input = rows_of(x, part);
            add_to(result_.gradients[rank].at(layer + ".weight"),
                   plain_product(along_columns(gradient).transposed(), along_columns(input).transposed()));
            set_rows(dx, part, plain_product(along_rows(gradient), weight.transposed()));
        }
        return dx;
    }

    BlockSizes blocks_;
};

}  // namespace mgplan::tests::fp8_reference
