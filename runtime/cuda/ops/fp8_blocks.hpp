#pragma once
// See model/ops/fp8_blocks.hpp.

#include "runtime/cuda/ops/fp8.hpp"
#include "runtime/cuda/ops/fp8_tiles.hpp"
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

/// Memory shared by the lanes of a tile: the largest magnitudes that each found, then the factors of blocks.
template <int kLength>
struct BlocksOfTile {
    static constexpr int kBlocks = Tile::kSide / kLength, kFactors = kBlocks * Tile::kSide;
    static constexpr int kPitch = Tile::kLanes + 8;  // lanes that read four adjacent columns find them in different banks
    union {
        float of_columns[Tile::kWide * kPitch];
        TurnedTile turned;  ///< once factors are known
    };
    float of_rows[Tile::kHigh * Tile::kLanes];
    float column_factors[kFactors], row_factors[kFactors];  ///< block by block
};

/// Vectors along rows, along columns, or both, from one read: a team for each tile. Codes along columns lie as the values do, or `turned`.
template <class Element, class Scale, int kLength, bool kPacked>
struct CastTiles {
    using Blocks = BlocksOfTile<kLength>;
    static constexpr int kTeamsAtOnce = kPacked ? TileValues<Element>::kTeamsAtOnce : 1;
    const Element* x;
    E4m3 *codes, *column_codes;  ///< codes and their scales: may be null
    typename Scale::Stored *scales, *column_scales;
    std::int64_t rows, columns;
    bool turned;
    model::Fp8ScaleLayout layout, column_layout;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const Tile tile = Tile::at(rows, columns, index);
        Blocks& blocks = *team.template shared<Blocks, 1>();
        team.template phases<TileValues<Element>>(
            [&](int lane, auto& values) {
                values = tile.load<kPacked>(x, lane);
                share_largest(values, blocks, lane);
            },
            [&](int lane, auto& /*values*/) {
                if constexpr (Blocks::kFactors < Tile::kLanes) {  // half of the lanes have columns, half rows
                    static_assert(2 * Blocks::kFactors == Tile::kLanes);
                    if (lane < Blocks::kFactors)
                        scale_column(tile, blocks, lane);
                    else
                        scale_row(tile, blocks, lane - Blocks::kFactors);
                } else {
                    static_assert(Blocks::kFactors == 2 * Tile::kLanes);
                    const int shares[] = {lane, lane + Tile::kLanes};
                    for (const int share : shares) {
                        scale_column(tile, blocks, share);
                        scale_row(tile, blocks, share);
                    }
                }
            },
            [&](int lane, auto& values) { cast(tile, values, blocks, lane); },
            [&](int lane, auto& /*values*/) {
                if (turned) blocks.turned.template store<kPacked>(tile, column_codes, lane);
            });
    }

private:
    MGPLAN_BOTH static void share_largest(const TileValues<Element>& values, Blocks& blocks, int lane) {
        float of_rows[Tile::kHigh], of_columns[Tile::kWide];
        values.largest(of_rows, of_columns);
        for (int r = 0; r < Tile::kHigh; ++r) blocks.of_rows[r * Tile::kLanes + lane] = of_rows[r];
        for (int k = 0; k < Tile::kWide; ++k) blocks.of_columns[k * Blocks::kPitch + lane] = of_columns[k];
    }

    MGPLAN_BOTH void scale_column(const Tile& tile, Blocks& blocks, int share) const {
        constexpr int kJoined = kLength / Tile::kHigh;  // lanes down
        const int across = share % Tile::kLanesAcross, k = share / Tile::kLanesAcross % Tile::kWide, block = share / Tile::kSide;
        float largest = 0;
        for (int j = 0; j < kJoined; ++j)
            largest = fmaxf(largest, blocks.of_columns[k * Blocks::kPitch + (block * kJoined + j) * Tile::kLanesAcross + across]);
        const int at = across * Tile::kWide + k;
        blocks.column_factors[block * Tile::kSide + at] = Scale::factor(largest);
        const std::int64_t column = tile.first_column + at, row = tile.first_row + block * kLength;
        if (column < columns && row < rows) column_scales[column_layout.at(column, row / kLength)] = Scale::stored(largest);
    }

    MGPLAN_BOTH void scale_row(const Tile& tile, Blocks& blocks, int share) const {
        constexpr int kJoined = kLength / Tile::kWide;  // lanes across
        const int down = share % Tile::kLanesDown, r = share / Tile::kLanesDown % Tile::kHigh, block = share / Tile::kSide;
        float largest = 0;
        for (int j = 0; j < kJoined; ++j) {
            const int across = block * kJoined + (j + down / 4) % kJoined;
            largest = fmaxf(largest, blocks.of_rows[r * Tile::kLanes + down * Tile::kLanesAcross + across]);
        }
        const int at = down * Tile::kHigh + r;
        blocks.row_factors[block * Tile::kSide + at] = Scale::factor(largest);
        const std::int64_t row = tile.first_row + at, column = tile.first_column + block * kLength;
        if (codes != nullptr && row < rows && column < columns) scales[layout.at(row, column / kLength)] = Scale::stored(largest);
    }

    /// Few columns at a time: codes take the registers of the values that they are made of.
    MGPLAN_BOTH void cast(const Tile& tile, const TileValues<Element>& values, Blocks& blocks, int lane) const {
        const int across = Tile::across(lane), down = Tile::down(lane), first_column = across * Tile::kWide, first_row = down * Tile::kHigh;
        const float* const row_factors = blocks.row_factors + first_column / kLength * Tile::kSide + first_row;
        const float* const column_factors = blocks.column_factors + first_row / kLength * Tile::kSide + first_column;
        constexpr int kAtOnce = 2;
        Pack<E4m3, Tile::kWide> by_rows[Tile::kHigh], by_columns[Tile::kHigh];
        for (int first = 0; first < Tile::kWide; first += kAtOnce) {
            std::uint32_t words[kAtOnce] = {};
            for (int r = 0; r < Tile::kHigh; ++r) {
                const auto row = values.row(r);
                for (int k = 0; k < kAtOnce; ++k) {
                    const auto value = static_cast<float>(row[first + k]);
                    by_rows[r][first + k] = E4m3(value * row_factors[r]);
                    by_columns[r][first + k] = E4m3(value * column_factors[first + k]);
                    words[k] |= static_cast<std::uint32_t>(by_columns[r][first + k].bits) << 8 * r;
                }
            }
            for (int k = 0; k < kAtOnce; ++k) {
                if (turned) blocks.turned.set(across, first + k, down, words[k]);
            }
        }
        for (int r = 0; r < Tile::kHigh; ++r) {
            if (codes != nullptr) tile.store_row<kPacked>(codes, lane, r, by_rows[r]);
            if (!turned) tile.store_row<kPacked>(column_codes, lane, r, by_columns[r]);
        }
    }
};

/// Casts squares, which are tiles, to codes in the matrix's order and, if `turned` is set, to the same codes transposed.
template <class Element, bool kPacked>
struct CastSquares {
    static constexpr int kGroups = 16, kTeamsAtOnce = kPacked ? TileValues<Element>::kTeamsAtOnce : 1;
    struct Shared {
        float of_lanes[Tile::kLanes], of_groups[kGroups];
        TurnedTile turned;
    };
    const Element* x;
    E4m3 *codes, *turned;  ///< turned, and its scales: may be null
    float *scales, *turned_scales;
    std::int64_t rows, columns;
    model::Fp8ScaleLayout layout, turned_layout;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const Tile tile = Tile::at(rows, columns, index);
        Shared& memory = *team.template shared<Shared, 1>();
        team.template phases<TileValues<Element>>(
            [&](int lane, auto& values) {
                values = tile.load<kPacked>(x, lane);
                float of_rows[Tile::kHigh], of_columns[Tile::kWide];
                values.largest(of_rows, of_columns);
                memory.of_lanes[lane] = joined(of_rows, Tile::kHigh, 1);
            },
            [&](int lane, auto& /*values*/) {
                if (lane < kGroups) memory.of_groups[lane] = joined(memory.of_lanes + lane, Tile::kLanes / kGroups, kGroups);
            },
            [&](int lane, auto& values) { cast(tile, values, memory, lane); },
            [&](int lane, auto& /*values*/) {
                if (turned != nullptr) memory.turned.template store<kPacked>(tile, turned, lane);
            });
    }

private:
    MGPLAN_BOTH static float joined(const float* magnitudes, int count, int pitch) {
        float largest = 0;
        for (int i = 0; i < count; ++i) largest = fmaxf(largest, magnitudes[i * pitch]);
        return largest;
    }
    MGPLAN_BOTH void cast(const Tile& tile, const TileValues<Element>& values, Shared& memory, int lane) const {
        const float largest = joined(memory.of_groups, kGroups, 1), factor = ScaleInFp32::factor(largest);
        cast_tile<kPacked>(tile, values, factor, codes, memory.turned, lane);
        if (lane > 0) return;
        scales[layout.at(tile.first_row, tile.first_column / Tile::kSide)] = ScaleInFp32::stored(largest);
        if (turned != nullptr)
            turned_scales[turned_layout.at(tile.first_column, tile.first_row / Tile::kSide)] = ScaleInFp32::stored(largest);
    }
};

/// Returns true if all rows begin at multiples of sixteen codes.
inline bool come_in_packs(const model::QuantiseBlocksArguments& x) {
    const std::uint64_t sizes = static_cast<std::uint64_t>(x.columns | (x.turned ? x.rows : 0));
    return (sizes | address(x.x.data) | address(x.codes.data) | address(x.column_codes.data)) % 16 == 0;
}

/// The layouts of both casts' scales.
struct LayoutsOfBlocks {
    model::Fp8ScaleLayout along_rows, along_columns;
};

template <class Scale, int kLength, class Launcher>
void quantise_vectors(Launcher&& launcher, const model::QuantiseBlocksArguments& x, const LayoutsOfBlocks& layouts) {
    auto* const scales = static_cast<typename Scale::Stored*>(x.scales.data);
    const bool packed = come_in_packs(x);
    with_type(x.x.dtype, [&]<class Element>() {
        const Element* const from = values<Element>(x.x);
        E4m3* const codes = values<E4m3>(x.codes);
        if (x.column_codes.data != nullptr) {
            const auto cast = [&]<bool kPacked>() {
                launcher.teams(
                    Tile::count(x.rows, x.columns), Tile::kLanes,
                    CastTiles<Element, Scale, kLength, kPacked>{from, codes, values<E4m3>(x.column_codes), scales,
                                                                static_cast<typename Scale::Stored*>(x.column_scales.data), x.rows,
                                                                x.columns, x.turned, layouts.along_rows, layouts.along_columns});
            };
            return packed ? cast.template operator()<true>() : cast.template operator()<false>();
        }
        const model::Fp8ScaleLayout& layout = layouts.along_rows;
        using Packs = CastPacksOfRows<Element, Scale>;
        if (packed) {
            const std::int64_t stretches = (x.columns + Packs::kStretch - 1) / Packs::kStretch;
            return launcher.teams(x.rows * stretches, Packs::kPacks / 2, Packs{from, codes, scales, x.columns, kLength, stretches, layout});
        }
        launcher.teams(x.rows * layout.blocks, 32, CastBlocksOfRows<Element, Scale>{from, codes, scales, x.columns, kLength, layout});
    });
}

template <class Launcher>
void quantise_blocks(model::Device& device, const model::QuantiseBlocksArguments& x) {
    auto&& launcher = Launcher::of(device);
    const LayoutsOfBlocks layouts{{x.scaling, x.scale_rows, x.columns}, {x.scaling, x.columns, x.rows}};
    const auto zero = [&](const model::Output& scales, const model::Fp8ScaleLayout& layout, bool has_more) {
        if (scales.data != nullptr && (layout.has_padding() || has_more))
            launcher.zero(scales.data, layout.count() * bytes_of(scales.dtype));
    };
    zero(x.scales, layouts.along_rows, x.scale_rows > x.rows);
    zero(x.column_scales, layouts.along_columns, false);
    if (x.scaling == model::Fp8Scaling::vectors_of_32) return quantise_vectors<ScaleInE8m0, 32>(launcher, x, layouts);
    if (x.scaling == model::Fp8Scaling::vectors_of_128) return quantise_vectors<ScaleInFp32, 128>(launcher, x, layouts);
    with_type(x.x.dtype, [&]<class Element>() {
        const auto cast = [&]<bool kPacked>() {
            launcher.teams(Tile::count(x.rows, x.columns), Tile::kLanes,
                           CastSquares<Element, kPacked>{values<Element>(x.x), values<E4m3>(x.codes), values<E4m3>(x.column_codes),
                                                         values<float>(x.scales), values<float>(x.column_scales), x.rows, x.columns,
                                                         layouts.along_rows, layouts.along_columns});
        };
        come_in_packs(x) ? cast.template operator()<true>() : cast.template operator()<false>();
    });
}

}  // namespace mgplan::runtime::cuda
