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

/// The same where 16 divides rows and addresses: a team for each stretch of a row, whose lanes load sixteen values at once. Blocks are
/// whole numbers of such packs, and stretches of blocks; which pack's largest value comes first changes nothing.
template <class Element, class Scale>
struct CastPacksOfRows {
    static constexpr int kValues = 16, kPacks = 256;  ///< of a pack; of a stretch
    static constexpr std::int64_t kStretch = kValues * kPacks;
    const Element* x;
    E4m3* codes;
    typename Scale::Stored* scales;
    std::int64_t columns, length, stretches;
    model::Fp8ScaleLayout layout;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        float* const largest_of_packs = team.template shared<float, kPacks>();
        const auto [row, stretch] = row_column(index, stretches);
        const std::int64_t first = row * columns + stretch * kStretch, left = columns - stretch * kStretch;
        const std::int64_t count = left < kStretch ? left : kStretch;
        const auto load = [&](auto size, std::int64_t i) { return load_pack<decltype(size)::value>(x + first + i); };
        team.template each_pack<kValues>(count, load, [&](auto size, std::int64_t i, const auto& pack) {
            float largest = 0;
            for (int k = 0; k < decltype(size)::value; ++k) largest = LargerNumber{}(largest, magnitude_of(pack[k]));
            largest_of_packs[i / kValues] = largest;
        });
        team.barrier();
        team.template each_pack<kValues>(count, load, [&](auto size, std::int64_t i, const auto& pack) {
            constexpr int kSize = decltype(size)::value;
            const std::int64_t block = i / length, behind = (block + 1) * length;
            float largest = 0;
            for (std::int64_t of = block * length; of < (behind < count ? behind : count); of += kValues)
                largest = LargerNumber{}(largest, largest_of_packs[of / kValues]);
            const float factor = Scale::factor(largest);
            Pack<E4m3, kSize> cast;
            for (int k = 0; k < kSize; ++k) cast[k] = E4m3(static_cast<float>(pack[k]) * factor);
            store_pack<kSize>(codes + first + i, cast);
            if (i == block * length) scales[layout.at(row, stretch * kStretch / length + block)] = Scale::stored(largest);
        });
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

/// A team for each square, N values at a time: 16, where that divides rows and addresses, or 1.
template <class Element, int N>
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
        const auto load = [&](auto size, std::int64_t i) { return load_pack<decltype(size)::value>(x + place(i)); };
        const float largest = team.template reduce_packs<N>(height * width, 0.0F, LargerNumber{}, load,
                                                            [](const auto& pack, int k) { return magnitude_of(pack[k]); });
        const float factor = ScaleInFp32::factor(largest);
        team.template each_pack<N>(height * width, load, [&](auto size, std::int64_t i, const auto& pack) {
            constexpr int kSize = decltype(size)::value;
            Pack<E4m3, kSize> cast;
            for (int k = 0; k < kSize; ++k) cast[k] = E4m3(static_cast<float>(pack[k]) * factor);
            store_pack<kSize>(codes + place(i), cast);
        });
        team.once([&] {
            scales[layout.at(first_row, block)] = ScaleInFp32::stored(largest);
            if (across != nullptr) across[layout_across.at(first_column, down)] = ScaleInFp32::stored(largest);
        });
    }
};

/// Whether rows begin where a pack of sixteen codes may.
inline bool come_in_packs(const model::QuantiseBlocksArguments& x) {
    return (static_cast<std::uint64_t>(x.columns) | address(x.x.data) | address(x.codes.data)) % 16 == 0;
}

template <class Scale, class Launcher>
void quantise_vectors(Launcher&& launcher, const model::QuantiseBlocksArguments& x, const model::Fp8ScaleLayout& layout) {
    auto* const scales = static_cast<typename Scale::Stored*>(x.scales.data);
    const std::int64_t length = fp8_block(x.scaling);
    with_type(x.x.dtype, [&]<class Element>() {
        const Element* const from = values<Element>(x.x);
        E4m3* const codes = values<E4m3>(x.codes);
        using Packs = CastPacksOfRows<Element, Scale>;
        if (!x.along_columns && come_in_packs(x)) {
            const std::int64_t stretches = (x.columns + Packs::kStretch - 1) / Packs::kStretch;
            return launcher.teams(x.rows * stretches, Packs::kPacks / 2, Packs{from, codes, scales, x.columns, length, stretches, layout});
        }
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
        const auto cast = [&]<int N>() {
            launcher.teams((x.rows + 127) / 128 * layout.blocks, 256,
                           CastSquares<Element, N>{values<Element>(x.x), values<E4m3>(x.codes), values<float>(x.scales),
                                                   static_cast<float*>(x.across.data), x.rows, x.columns, layout, across});
        };
        if (come_in_packs(x))
            cast.template operator()<16>();
        else
            cast.template operator()<1>();
    });
}

}  // namespace mgplan::runtime::cuda
