#pragma once
// Tiles of 128 x 128 values that a team of 256 lanes reads once and casts to fp8 along rows and along columns, as they lie and transposed.
// Transformer Engine's kernels have tiles too (common/transpose/quantize_transpose_vector_blockwise.cu, common/cast/mxfp8).

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/cuda/ops/packs.hpp"
#include "runtime/fp8.hpp"

namespace mgplan::runtime::cuda {

/// Returns the larger magnitudes of two pairs of bf16 values, the first of which are magnitudes. NaNs in the second are ignored.
MGPLAN_BOTH inline std::uint32_t larger_magnitudes(std::uint32_t magnitudes, std::uint32_t values) {
#ifdef __CUDA_ARCH__
    // max.bf16x2 of a NaN and a number is the number (PTX ISA, "max" of half precision).
    std::uint32_t larger;
    asm("{.reg .b32 m; abs.bf16x2 m, %2; max.bf16x2 %0, %1, m;}" : "=r"(larger) : "r"(magnitudes), "r"(values));
    return larger;
#else
    std::uint32_t larger = 0;
    for (const std::uint32_t shift : {0U, 16U}) {
        // Magnitudes' bits are in their order, infinity's the last.
        const std::uint32_t most = magnitudes >> shift & 0xffffU, value = values >> shift & 0x7fffU;
        larger |= (value > most && value <= 0x7f80U ? value : most) << shift;
    }
    return larger;
#endif
}

/// One lane's part of a tile: sixteen columns of four rows, so eight loads of sixteen bytes in bf16. Words stay as they were loaded, so
/// that all loads are issued before the first word is unpacked.
template <class Element>
struct TileValues {
    using Row = Pack<Element, 16>;
    static constexpr int kWords = static_cast<int>(sizeof(Row) / sizeof(Word16));
    static constexpr int kTeamsAtOnce = sizeof(Element) > 2 ? 1 : 3;  ///< for which a multiprocessor has registers
    Word16 words[4][kWords];

    MGPLAN_BOTH Row row(int r) const {
        Row row;
        memcpy(&row, words[r], sizeof(row));
        return row;
    }
    MGPLAN_BOTH void set(int r, const Row& row) { memcpy(words[r], &row, sizeof(row)); }
    /// The largest magnitude of each row and of each column; NaNs are none. Of bf16 pairs at a time, so that nothing wider than what was
    /// loaded waits for a barrier.
    MGPLAN_BOTH void largest(float (&of_rows)[4], float (&of_columns)[16]) const {
        if constexpr (std::is_same_v<Element, Bf16>) {
            std::uint32_t columns[8] = {};
            for (int r = 0; r < 4; ++r) {
                std::uint32_t pairs[8], both = 0;
                memcpy(pairs, words[r], sizeof(pairs));
                for (int k = 0; k < 8; ++k) {
                    both = larger_magnitudes(both, pairs[k]);
                    columns[k] = larger_magnitudes(columns[k], pairs[k]);
                }
                of_rows[r] = fmaxf(low_of_pair(both), high_of_pair(both));
            }
            for (int k = 0; k < 8; ++k) {
                of_columns[2 * k] = low_of_pair(columns[k]);
                of_columns[2 * k + 1] = high_of_pair(columns[k]);
            }
        } else {
            for (float& column : of_columns) column = 0;
            for (int r = 0; r < 4; ++r) {
                const Row values = row(r);
                of_rows[r] = 0;
                for (int k = 0; k < 16; ++k) {
                    const float magnitude = fabsf(static_cast<float>(values[k]));
                    of_rows[r] = fmaxf(of_rows[r], magnitude);  // of a NaN and a number the number
                    of_columns[k] = fmaxf(of_columns[k], magnitude);
                }
            }
        }
    }
    MGPLAN_BOTH static float low_of_pair(std::uint32_t pair) { return bits_as<float>(pair << 16); }
    MGPLAN_BOTH static float high_of_pair(std::uint32_t pair) { return bits_as<float>(pair & 0xffff0000U); }
};

/// A tile of a matrix (rows, columns), neither of which is 0.
struct Tile {
    static constexpr int kSide = 128, kLanes = 256, kWide = 16, kHigh = 4;          ///< kWide, kHigh: columns and rows of a lane
    static constexpr int kLanesAcross = kSide / kWide, kLanesDown = kSide / kHigh;  ///< lanes of a row of the tile, and of a column
    std::int64_t rows, columns, first_row, first_column;

    /// Number `index` of the matrix, row of tiles by row.
    MGPLAN_BOTH static Tile at(std::int64_t rows, std::int64_t columns, std::int64_t index) {
        const auto [down, across] = row_column(index, (columns + kSide - 1) / kSide);
        return {rows, columns, down * kSide, across * kSide};
    }
    static std::int64_t count(std::int64_t rows, std::int64_t columns) {
        return (rows + kSide - 1) / kSide * ((columns + kSide - 1) / kSide);
    }
    MGPLAN_BOTH static int across(int lane) { return lane % kLanesAcross; }
    MGPLAN_BOTH static int down(int lane) { return lane / kLanesAcross; }

    /// A lane's values. Places outside of the matrix have those of its last row and column, which change no block's largest, so that no
    /// load waits for a branch. kPacked: rows begin where packs may, here and where codes are written.
    template <bool kPacked, class Element>
    MGPLAN_BOTH TileValues<Element> load(const Element* x, int lane) const {
        const std::int64_t row = first_row + kHigh * down(lane), column = first_column + kWide * across(lane);
        TileValues<Element> values;
        for (int r = 0; r < kHigh; ++r) {
            const Element* const from = x + Smaller{}(row + r, rows - 1) * columns;
            if constexpr (kPacked) {
                const Element* const pack = from + Smaller{}(column, columns - kWide);
                load_words(pack, values.words[r]);
            } else {
                Pack<Element, kWide> pack;
                for (int k = 0; k < kWide; ++k) pack[k] = from[Smaller{}(column + k, columns - 1)];
                values.set(r, pack);
            }
        }
        return values;
    }

    /// A lane's codes of its row r, as they lie.
    template <bool kPacked, class Code>
    MGPLAN_BOTH void store_row(Code* codes, int lane, int r, const Pack<Code, kWide>& pack) const {
        const std::int64_t row = first_row + kHigh * down(lane) + r, column = first_column + kWide * across(lane);
        if (row >= rows) return;
        if constexpr (kPacked) {
            if (column < columns) store_pack<kWide>(codes + row * columns + column, pack);
        } else {
            for (int k = 0; k < kWide; ++k) {
                if (column + k < columns) codes[row * columns + column + k] = pack[k];
            }
        }
    }
};

/// A tile's codes on their way to where columns lie along rows: words of four rows of a column, in memory that a team shares.
struct TurnedTile {
    struct alignas(16) Words {
        std::uint32_t values[4];
    };
    Words words[Tile::kSide * Tile::kLanesDown / 4];

    /// The word of four rows, 4 · down on, of column k of a lane's sixteen. Rotated by lanes across, so that a warp that writes (8 lanes
    /// across, 4 down) and one that reads (whole columns) meet each bank once.
    MGPLAN_BOTH static int place(int across, int k, int down) {
        return (across * Tile::kWide + k) * Tile::kLanesDown + (down + 4 * across) % Tile::kLanesDown;
    }
    MGPLAN_BOTH void set(int across, int k, int down, std::uint32_t codes) {
        const int at = place(across, k, down);
        words[at / 4].values[at % 4] = codes;
    }
    /// A lane's share of the tile, to `codes` (columns, rows).
    template <bool kPacked, class Code>
    MGPLAN_BOTH void store(const Tile& tile, Code* codes, int lane) const {
        constexpr int kPacks = Tile::kSide / Tile::kWide, kColumns = Tile::kLanes / kPacks;  // of a column; that lanes store at once
        const int part = lane % kPacks;
        const std::int64_t row = tile.first_row + Tile::kWide * part;
        if (row >= tile.rows) return;
        for (int first = 0; first < Tile::kSide; first += kColumns) {
            const int of_tile = first + lane / kPacks;
            const std::int64_t column = tile.first_column + of_tile;
            if (column >= tile.columns) return;
            Pack<Code, Tile::kWide> pack;
            memcpy(&pack, &words[place(of_tile / Tile::kWide, of_tile % Tile::kWide, 4 * part) / 4], sizeof(pack));
            if constexpr (kPacked) {
                store_pack<Tile::kWide>(codes + column * tile.rows + row, pack);
            } else {
                for (int k = 0; k < Tile::kWide; ++k) {
                    if (row + k < tile.rows) codes[column * tile.rows + row + k] = pack[k];
                }
            }
        }
    }
};

/// Casts a lane's values times one factor: to codes in the matrix's order, if `codes` is set, and to words of the turned tile.
template <bool kPacked, class Code, class Element>
MGPLAN_BOTH void cast_tile(const Tile& tile, const TileValues<Element>& values, float factor, Code* codes, TurnedTile& turned, int lane) {
    std::uint32_t words[Tile::kWide] = {};
    for (int r = 0; r < Tile::kHigh; ++r) {
        const auto row = values.row(r);
        Pack<Code, Tile::kWide> cast;
        for (int k = 0; k < Tile::kWide; ++k) {
            cast[k] = Code(static_cast<float>(row[k]) * factor);
            words[k] |= static_cast<std::uint32_t>(cast[k].bits) << 8 * r;
        }
        if (codes != nullptr) tile.store_row<kPacked>(codes, lane, r, cast);
    }
    for (int k = 0; k < Tile::kWide; ++k) turned.set(Tile::across(lane), k, Tile::down(lane), words[k]);
}

}  // namespace mgplan::runtime::cuda
