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

/// Output of one of the two casts: codes, scales, and the values that one block covers.
template <class Stored>
struct BlockCast {
    E4m3* codes;
    Stored* scales;
    Fp8ScaleLayout layout;
    std::int64_t block_rows, block_columns;
    bool along_columns, turned;
};

template <class Scale, class Element>
void cast(const Element* from, std::int64_t rows, std::int64_t columns, const BlockCast<typename Scale::Stored>& to) {
    std::fill_n(to.scales, to.layout.count(), typename Scale::Stored{});
    const std::int64_t length = fp8_block(to.layout.scaling);
    for (std::int64_t row = 0; row < rows; row += to.block_rows) {
        const std::int64_t end_row = std::min(row + to.block_rows, rows);
        for (std::int64_t column = 0; column < columns; column += to.block_columns) {
            const std::int64_t end_column = std::min(column + to.block_columns, columns);
            float largest = 0;
            for (std::int64_t i = row; i < end_row; ++i) {
                for (std::int64_t j = column; j < end_column; ++j) {
                    const float magnitude = std::abs(static_cast<float>(from[i * columns + j]));
                    if (magnitude > largest) largest = magnitude;
                }
            }
            const float factor = Scale::factor(largest);
            for (std::int64_t i = row; i < end_row; ++i) {
                for (std::int64_t j = column; j < end_column; ++j)
                    to.codes[to.turned ? j * rows + i : i * columns + j] = E4m3(static_cast<float>(from[i * columns + j]) * factor);
            }
            to.scales[to.along_columns ? to.layout.at(column, row / length) : to.layout.at(row, column / length)] = Scale::stored(largest);
        }
    }
}

template <class Scale, class Element>
void cast(const model::QuantiseBlocksArguments& x) {
    using Stored = typename Scale::Stored;
    const auto* const from = values<Element>(x.x);
    const bool squares = x.scaling == Fp8Scaling::squares_of_128;
    const std::int64_t length = fp8_block(x.scaling), across = squares ? length : 1;
    if (x.codes.data != nullptr) {
        cast<Scale>(from, x.rows, x.columns,
                    BlockCast<Stored>{values<E4m3>(x.codes),
                                      static_cast<Stored*>(x.scales.data),
                                      {x.scaling, x.scale_rows, x.columns},
                                      across,
                                      length,
                                      false,
                                      false});
    }
    if (x.column_codes.data != nullptr) {
        cast<Scale>(from, x.rows, x.columns,
                    BlockCast<Stored>{values<E4m3>(x.column_codes),
                                      static_cast<Stored*>(x.column_scales.data),
                                      {x.scaling, x.columns, x.rows},
                                      length,
                                      across,
                                      true,
                                      x.turned});
    }
}

}  // namespace

void quantise_blocks(model::Device& /*device*/, const model::QuantiseBlocksArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            if (x.scaling == Fp8Scaling::vectors_of_32)
                cast<ScaleInE8m0, Element>(x);
            else
                cast<ScaleInFp32, Element>(x);
        });
    });
}

}  // namespace mgplan::runtime::cpu
