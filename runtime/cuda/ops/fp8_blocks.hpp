#pragma once
// See model/ops/fp8_blocks.hpp.

#include "runtime/cuda/ops/fp8.hpp"
#include "runtime/fp8_blocks.hpp"

namespace mgplan::runtime::cuda {

/// The magnitude of a value in fp32.
template <class Element>
MGPLAN_BOTH float magnitude_of(const Element& value) {
    const auto wide = static_cast<float>(value);
    return wide < 0 ? -wide : wide;
}

/// A team for each block along a row.
template <class Element, class Scale>
struct CastBlocksOfRows {
    const Element* x;
    E4m3* codes;
    typename Scale::Stored* scales;
    std::int64_t columns, length;
    model::Fp8ScaleLayout layout;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [row, block] = row_column(index, layout.blocks);
        const std::int64_t first = row * columns + block * length, left = columns - block * length, count = left < length ? left : length;
        const float largest = team.reduce(count, 0.0F, LargerNumber{}, [&](std::int64_t i) { return magnitude_of(x[first + i]); });
        const float factor = Scale::factor(largest);
        team.each(count, [&](std::int64_t i) { codes[first + i] = E4m3(static_cast<float>(x[first + i]) * factor); });
        team.once([&] { scales[layout.at(row, block)] = Scale::stored(largest); });
    }
};

/// A lane for each block along a column: a team has kLanes columns that lie side by side.
template <class Element, class Scale>
struct CastBlocksOfColumns {
    static constexpr int kLanes = 128;
    const Element* x;
    E4m3* codes;
    typename Scale::Stored* scales;
    std::int64_t rows, columns, length;
    model::Fp8ScaleLayout layout;  ///< of (columns, rows)

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [block, part] = row_column(index, (columns + kLanes - 1) / kLanes);
        const std::int64_t first_row = block * length, first_column = part * kLanes;
        const std::int64_t end_row = first_row + length < rows ? first_row + length : rows;
        const std::int64_t wide = columns - first_column;
        team.each(wide < kLanes ? wide : kLanes, [&](std::int64_t i) {
            const std::int64_t column = first_column + i;
            float largest = 0;
            for (std::int64_t row = first_row; row < end_row; ++row)
                largest = LargerNumber{}(largest, magnitude_of(x[row * columns + column]));
            const float factor = Scale::factor(largest);
            for (std::int64_t row = first_row; row < end_row; ++row)
                codes[row * columns + column] = E4m3(static_cast<float>(x[row * columns + column]) * factor);
            scales[layout.at(column, block)] = Scale::stored(largest);
        });
    }
};

/// A team for each square.
template <class Element>
struct CastSquares {
    static constexpr std::int64_t kSide = 128;
    const Element* x;
    E4m3* codes;
    float *scales, *across;  ///< across: may be null
    std::int64_t rows, columns;
    model::Fp8ScaleLayout layout, layout_across;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [down, block] = row_column(index, layout.blocks);
        const std::int64_t first_row = down * kSide, first_column = block * kSide;
        const std::int64_t wide = columns - first_column, high = rows - first_row;
        const std::int64_t width = wide < kSide ? wide : kSide, height = high < kSide ? high : kSide;
        const auto place = [&](std::int64_t i) {
            const auto [row, column] = row_column(i, width);
            return (first_row + row) * columns + first_column + column;
        };
        const float largest = team.reduce(height * width, 0.0F, LargerNumber{}, [&](std::int64_t i) { return magnitude_of(x[place(i)]); });
        const float factor = ScaleInFp32::factor(largest);
        team.each(height * width, [&](std::int64_t i) { codes[place(i)] = E4m3(static_cast<float>(x[place(i)]) * factor); });
        team.once([&] {
            scales[layout.at(first_row, block)] = ScaleInFp32::stored(largest);
            if (across != nullptr) across[layout_across.at(first_column, down)] = ScaleInFp32::stored(largest);
        });
    }
};

template <class Scale, class Launcher>
void quantise_vectors(Launcher&& launcher, const model::QuantiseBlocksArguments& x, const model::Fp8ScaleLayout& layout) {
    auto* const scales = static_cast<typename Scale::Stored*>(x.scales.data);
    const std::int64_t length = fp8_block(x.scaling);
    with_type(x.x.dtype, [&]<class Element>() {
        const Element* const from = values<Element>(x.x);
        E4m3* const codes = values<E4m3>(x.codes);
        if (!x.along_columns)
            return launcher.teams(x.rows * layout.blocks, 32,
                                  CastBlocksOfRows<Element, Scale>{from, codes, scales, x.columns, length, layout});
        using Body = CastBlocksOfColumns<Element, Scale>;
        const std::int64_t parts = (x.columns + Body::kLanes - 1) / Body::kLanes;
        launcher.teams(layout.blocks * parts, Body::kLanes, Body{from, codes, scales, x.rows, x.columns, length, layout});
    });
}

template <class Launcher>
void quantise_blocks(model::Device& device, const model::QuantiseBlocksArguments& x) {
    auto&& launcher = Launcher::of(device);
    const model::Fp8ScaleLayout across(x.scaling, x.columns, x.rows);
    const model::Fp8ScaleLayout layout = x.along_columns ? across : model::Fp8ScaleLayout(x.scaling, x.scale_rows, x.columns);
    if (layout.has_padding() || x.scale_rows > x.rows) launcher.zero(x.scales.data, layout.count() * bytes_of(x.scales.dtype));
    if (x.scaling == model::Fp8Scaling::vectors_of_32) return quantise_vectors<ScaleInE8m0>(launcher, x, layout);
    if (x.scaling == model::Fp8Scaling::vectors_of_128) return quantise_vectors<ScaleInFp32>(launcher, x, layout);
    if (x.across.data != nullptr && across.has_padding()) launcher.zero(x.across.data, across.count() * bytes_of(x.across.dtype));
    with_type(x.x.dtype, [&]<class Element>() {
        launcher.teams((x.rows + 127) / 128 * layout.blocks, 256,
                       CastSquares<Element>{values<Element>(x.x), values<E4m3>(x.codes), values<float>(x.scales),
                                            static_cast<float*>(x.across.data), x.rows, x.columns, layout, across});
    });
}

}  // namespace mgplan::runtime::cuda
