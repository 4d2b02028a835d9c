#include "runtime/fp8_blocks.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

using model::Fp8ScaleLayout;
using model::Fp8Scaling;

/// Rows and columns of one block as values lie.
struct BlockSides {
    std::int64_t rows, columns;
};

BlockSides sides_of(const model::QuantiseBlocksArguments& x) {
    const std::int64_t length = fp8_block(x.scaling);
    if (x.scaling == Fp8Scaling::squares_of_128) return {length, length};
    return x.along_columns ? BlockSides{length, 1} : BlockSides{1, length};
}

template <class Element, class Scale>
void cast(const model::QuantiseBlocksArguments& x) {
    const Element* const from = values<Element>(x.x);
    E4m3* const to = values<E4m3>(x.codes);
    auto* const scales = static_cast<typename Scale::Stored*>(x.scales.data);
    auto* const across = static_cast<typename Scale::Stored*>(x.across.data);
    const Fp8ScaleLayout along =
        x.along_columns ? Fp8ScaleLayout(x.scaling, x.columns, x.rows) : Fp8ScaleLayout(x.scaling, x.scale_rows, x.columns);
    const Fp8ScaleLayout other(x.scaling, x.columns, x.rows);
    std::fill_n(scales, along.count(), typename Scale::Stored{});
    if (across != nullptr) std::fill_n(across, other.count(), typename Scale::Stored{});
    const BlockSides sides = sides_of(x);
    for (std::int64_t row = 0; row < x.rows; row += sides.rows) {
        const std::int64_t end_row = std::min(row + sides.rows, x.rows);
        for (std::int64_t column = 0; column < x.columns; column += sides.columns) {
            const std::int64_t end_column = std::min(column + sides.columns, x.columns);
            float largest = 0;
            for (std::int64_t i = row; i < end_row; ++i) {
                for (std::int64_t j = column; j < end_column; ++j) {
                    const float magnitude = std::abs(static_cast<float>(from[i * x.columns + j]));
                    if (magnitude > largest) largest = magnitude;
                }
            }
            const float factor = Scale::factor(largest);
            for (std::int64_t i = row; i < end_row; ++i) {
                for (std::int64_t j = column; j < end_column; ++j)
                    to[i * x.columns + j] = E4m3(static_cast<float>(from[i * x.columns + j]) * factor);
            }
            const std::int64_t length = fp8_block(x.scaling);
            scales[x.along_columns ? along.at(column, row / length) : along.at(row, column / length)] = Scale::stored(largest);
            if (across != nullptr) across[other.at(column, row / length)] = Scale::stored(largest);
        }
    }
}

}  // namespace

void quantise_blocks(model::Device& /*device*/, const model::QuantiseBlocksArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            if (x.scaling == Fp8Scaling::vectors_of_32)
                cast<Element, ScaleInE8m0>(x);
            else
                cast<Element, ScaleInFp32>(x);
        });
    });
}

}  // namespace mgplan::runtime::cpu
