#pragma once
// See model/ops/fp8.hpp.

#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/arrays.hpp"
#include "runtime/cuda/ops/elementwise.hpp"
#include "runtime/cuda/ops/fp8_tiles.hpp"
#include "runtime/cuda/ops/launch.hpp"
#include "runtime/cuda/ops/packs.hpp"
#include "runtime/fp8.hpp"

namespace mgplan::runtime::cuda {

/// *place = the larger of it and value; several teams at once. Neither is negative, so that their bits are in their order.
MGPLAN_BOTH inline void raise_to(float* place, float value) {
#ifdef __CUDA_ARCH__
    atomicMax(reinterpret_cast<unsigned*>(place), __float_as_uint(value));
#else
    if (value > *place) *place = value;
#endif
}

struct LargerNumber {
    MGPLAN_BOTH float operator()(float a, float b) const { return b > a ? b : a; }
};

/// Returns the largest magnitude of `count` values, found by a team.
template <bool kAligned, class Team, class Element>
MGPLAN_BOTH float largest_of(const Team& team, const Element* x, std::int64_t count) {
    return team.template reduce_packs<kPack<Element>>(count, 0.0F, LargerNumber{}, LoadPacks<kAligned, Element>{x},
                                                      [](const auto& pack, int k) {
                                                          const auto value = static_cast<float>(pack[k]);
                                                          return value < 0 ? -value : value;
                                                      });
}

/// The largest magnitude of a piece of a flat array, into what begins at 0. Which team comes first changes nothing.
template <class Element, bool kAligned>
struct LargestOfPiece {
    const Element* x;
    float* largest;
    std::int64_t elements, parts;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t part) const {
        const Piece piece = piece_of(elements, parts, part);
        const float most = largest_of<kAligned>(team, x + piece.begin, piece.count);
        team.once([&] { raise_to(largest, most); });
    }
};

/// The same of many arrays, the shares of which are their pieces. Several of them may raise one place.
template <class Element>
struct LargestOfArrays {
    struct Array {
        const Element* x;
        float* largest;
        std::int64_t elements, parts;
        bool aligned;
    };
    ArrayList<Array> list;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t share) const {
        const auto [array, index] = list.share_of(share);
        const Piece piece = piece_of(array.elements, array.parts, index);
        const Element* const x = array.x + piece.begin;
        const float most = array.aligned ? largest_of<true>(team, x, piece.count) : largest_of<false>(team, x, piece.count);
        team.once([&] { raise_to(array.largest, most); });
    }
};

/// Sets the largest magnitude of each array to 0, before the kernel that raises it.
template <class Element>
struct ClearLargest {
    ArrayList<typename LargestOfArrays<Element>::Array> list;
    MGPLAN_BOTH void operator()(std::int64_t i) const { *list.arrays[i].largest = 0; }
};

/// Sixteen codes of a thread at a time.
template <class Element, class Code>
struct CastToFp8 {
    const Element* x;
    const float* largest;
    Code* codes;
    float* inverse;

    template <int N>
    MGPLAN_BOTH Pack<Element, N> load(std::int64_t i) const {
        return load_pack<N>(x + i);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, const Pack<Element, N>& values) const {
        const float scale = fp8_scale<typename Code::Format>(*largest);
        Pack<Code, N> cast;
        for (int k = 0; k < N; ++k) cast[k] = Code(static_cast<float>(values[k]) * scale);
        store_pack<N>(codes + i, cast);
        if (i == 0) *inverse = 1 / scale;
    }
};

/// Casts a matrix to transposed codes and, if `codes` is set, to codes in the matrix's own order: a team for each tile.
template <class Element, class Code, bool kPacked>
struct CastAndTurn {
    static constexpr int kTeamsAtOnce = kPacked ? TileValues<Element>::kTeamsAtOnce : 1;
    const Element* x;
    const float* largest;
    Code *codes, *turned;  ///< codes: may be null
    float* inverse;
    std::int64_t rows, columns;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const Tile tile = Tile::at(rows, columns, index);
        TurnedTile& square = *team.template shared<TurnedTile, 1>();
        team.template phases<TileValues<Element>>(
            [&](int lane, auto& values) {
                values = tile.load<kPacked>(x, lane);
                const float scale = fp8_scale<typename Code::Format>(*largest);
                cast_tile<kPacked>(tile, values, scale, codes, square, lane);
                if (index == 0 && lane == 0) *inverse = 1 / scale;
            },
            [&](int lane, auto& /*values*/) { square.store<kPacked>(tile, turned, lane); });
    }
};

/// Casts of many arrays, a team for each share of one; each of its shares writes the array's inverse.
template <class Element>
struct CastOfArrays {
    struct Array {
        const Element* x;
        const float* largest;
        E4m3* codes;
        float* inverse;
        std::int64_t elements;
        bool aligned;
    };
    ArrayList<Array> list;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t share) const {
        const auto [array, index] = list.share_of(share);
        const Piece piece = share_of(array.elements, index);
        each_pack_of<kPack<Element, E4m3>>(
            team, array.aligned, piece.count,
            CastToFp8<Element, E4m3>{array.x + piece.begin, array.largest, array.codes + piece.begin, array.inverse});
    }
};

/// Side in bytes of the squares that go through memory that a team shares, so that both sides are read and written along rows.
inline constexpr int kTransposedSide = 128;

/// N bytes at a time, 16 or 1: columns, pitch and addresses are multiples of it. There are rows; those up to the pitch are 0.
template <int N>
struct TransposeBytes {
    static constexpr std::int64_t kSide = kTransposedSide;
    static constexpr int kPitch = kTransposedSide + 4;  // a column's words in other banks than its neighbour's
    const std::uint8_t* x;
    std::uint8_t* y;
    std::int64_t rows, columns, pitch;

    /// Bytes as they were loaded: unpacked when they are used, after the next load was issued.
    template <int Size>
    struct Loaded {
        std::conditional_t<Size == 1, std::uint8_t, Word16> bytes;
        bool has_values;
        MGPLAN_BOTH std::uint8_t operator[](int i) const {
            if (!has_values) return 0;
            if constexpr (Size == 1)
                return bytes;
            else
                return static_cast<std::uint8_t>((i < 8 ? bytes.low : bytes.high) >> 8 * (i % 8));
        }
    };

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        std::uint32_t* const words = team.template shared<std::uint32_t, kTransposedSide * kPitch / 4>();
        auto* const square = reinterpret_cast<std::uint8_t*>(words);
        const auto [down, across] = row_column(index, (columns + kSide - 1) / kSide);
        const std::int64_t first_row = down * kSide, first_column = across * kSide;
        const auto inside = [&](std::int64_t row, std::int64_t column, std::int64_t end) {
            return first_row + row < end && first_column + column < columns;
        };
        team.template each_pack<N>(
            kSide * kSide,
            [&](auto size, std::int64_t i) {  // places outside read the first bytes, so that no load waits for another's branch
                constexpr int kSize = decltype(size)::value;
                const bool has_values = inside(i / kSide, i % kSide, rows);
                const std::int64_t at = (first_row + i / kSide) * columns + first_column + i % kSide;
                return Loaded<kSize>{*reinterpret_cast<const decltype(Loaded<kSize>::bytes)*>(x + (has_values ? at : 0)), has_values};
            },
            [&](auto size, std::int64_t i, const auto& loaded) {
                for (int k = 0; k < decltype(size)::value; ++k) square[(i % kSide + k) * kPitch + i / kSide] = loaded[k];
            });
        team.barrier();
        team.template each_pack<N>(
            kSide * kSide,
            [&](auto size, std::int64_t i) {  // of the other side: a column, and rows along it
                constexpr int kSize = decltype(size)::value;
                Pack<std::uint8_t, kSize> pack;
                const std::int64_t at = i / kSide * kPitch + i % kSide;
                if constexpr (kSize % 4 == 0) {
                    std::uint32_t parts[kSize / 4];
                    for (int k = 0; k < kSize / 4; ++k) parts[k] = words[at / 4 + k];
                    memcpy(&pack, parts, sizeof(pack));
                } else {
                    for (int k = 0; k < kSize; ++k) pack[k] = square[at + k];
                }
                return pack;
            },
            [&](auto size, std::int64_t i, const auto& pack) {
                constexpr int kSize = decltype(size)::value;
                if (inside(i % kSide, i / kSide, pitch))
                    store_pack<kSize>(y + (first_column + i / kSide) * pitch + first_row + i % kSide, pack);
            });
    }
};

/// A team for each tensor, one value for each step in its window.
struct FollowLargest {
    float *now, *histories, *scales;
    std::int64_t length;
    float unit;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t tensor) const {
        float* const history = histories + tensor * (length + 1);
        const float value = now[tensor], place = history[length], latest = value / unit;
        const bool moves = value != 0;
        const auto at = static_cast<std::int64_t>(place);
        const float most =
            team.reduce(length, 0.0F, LargerNumber{}, [&](std::int64_t i) { return moves && i == at ? latest : history[i]; });
        team.once([&] {
            if (moves) {
                history[at] = latest;
                history[length] = place + 1 == static_cast<float>(length) ? 0 : place + 1;
            }
            if (fp8_has_scale(most)) scales[2 * tensor] = most * unit;
            now[tensor] = 0;
        });
    }
};

template <class Launcher>
void follow_largest(model::Device& device, const model::FollowLargestArguments& x) {
    auto&& launcher = Launcher::of(device);
    launcher.teams(
        x.tensors, 256,
        FollowLargest{values<float>(x.now), values<float>(x.history), values<float>(x.scales), x.length, static_cast<float>(x.unit)});
}

template <class Launcher>
void largest(model::Device& device, const model::LargestArguments& x) {
    auto&& launcher = Launcher::of(device);
    if (!x.raise) launcher.zero(x.largest.data, bytes_of(Dtype::fp32));
    const std::int64_t parts = model::reduction_parts(x.elements);
    if (x.elements == 0) return;
    with_type(x.x.dtype, [&]<class Element>() {
        const Element* const array = values<Element>(x.x);
        float* const place = values<float>(x.largest);
        if (address(x.x.data) % sizeof(Word16) == 0)
            launcher.teams(parts, 256, LargestOfPiece<Element, true>{array, place, x.elements, parts});
        else
            launcher.teams(parts, 256, LargestOfPiece<Element, false>{array, place, x.elements, parts});
    });
}

template <class Launcher>
void quantise(model::Device& device, const model::QuantiseArguments& x) {
    auto&& launcher = Launcher::of(device);
    const std::uint64_t sizes = static_cast<std::uint64_t>(x.rows | x.columns);
    const bool packed = (sizes | address(x.x.data) | address(x.codes.data) | address(x.turned.data)) % sizeof(Word16) == 0;
    const auto turn = [&]<class Element, class Code, bool kPacked>() {
        launcher.teams(Tile::count(x.rows, x.columns), Tile::kLanes,
                       CastAndTurn<Element, Code, kPacked>{values<Element>(x.x), values<float>(x.largest), values<Code>(x.codes),
                                                           values<Code>(x.turned), values<float>(x.inverse), x.rows, x.columns});
    };
    const auto cast = [&]<class Element, class Code>() {
        if (x.turned.data != nullptr)
            return packed ? turn.template operator()<Element, Code, true>() : turn.template operator()<Element, Code, false>();
        each_pack<kPack<Element, Code>>(
            launcher, x.elements, address(x.x.data) | address(x.codes.data),
            CastToFp8<Element, Code>{values<Element>(x.x), values<float>(x.largest), values<Code>(x.codes), values<float>(x.inverse)});
    };
    with_type(x.x.dtype, [&]<class Element>() {
        if ((x.codes.data != nullptr ? x.codes : x.turned).dtype == Dtype::fp8)
            cast.template operator()<Element, E4m3>();
        else
            cast.template operator()<Element, E5m2>();
    });
}

template <class Launcher>
void largest_of_arrays(model::Device& device, const model::LargestOfArraysArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.arrays[0].x.dtype, [&]<class Element>() {
        using Body = LargestOfArrays<Element>;
        static_assert(sizeof(Body) + sizeof(std::int64_t) <= kMostParameterBytes);
        const auto parts_of = [&](std::int64_t i) { return model::reduction_parts(x.arrays[i].elements); };
        const auto make = [&](std::int64_t i) {
            const model::LargestArray& array = x.arrays[i];
            return typename Body::Array{values<Element>(array.x), values<float>(array.largest), array.elements, parts_of(i),
                                        address(array.x.data) % sizeof(Word16) == 0};
        };
        each_list<typename Body::Array>(x.count, make, parts_of, [&](const auto& list, std::int64_t shares) {
            if (!x.raise) launcher.each(list.count, ClearLargest<Element>{list});
            launcher.teams(shares, 256, Body{list});
        });
    });
}

template <class Launcher>
void quantise_arrays(model::Device& device, const model::QuantiseArraysArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.arrays[0].x.dtype, [&]<class Element>() {
        using Body = CastOfArrays<Element>;
        static_assert(sizeof(Body) + sizeof(std::int64_t) <= kMostParameterBytes);
        const auto make = [&](std::int64_t i) {
            const model::QuantiseArguments& array = x.arrays[i];
            return typename Body::Array{values<Element>(array.x),
                                        values<float>(array.largest),
                                        values<E4m3>(array.codes),
                                        values<float>(array.inverse),
                                        array.elements,
                                        (address(array.x.data) | address(array.codes.data)) % sizeof(Word16) == 0};
        };
        each_list<typename Body::Array>(
            x.count, make, [&](std::int64_t i) { return shares_of(x.arrays[i].elements); },
            [&](const auto& list, std::int64_t shares) { launcher.teams(shares, 256, Body{list}); });
    });
}

template <class Launcher>
void transpose_bytes(model::Device& device, const model::TransposeBytesArguments& x) {
    auto&& launcher = Launcher::of(device);
    if (x.rows == 0) return launcher.zero(x.y.data, x.pitch * x.columns);
    const std::int64_t squares =
        ((x.pitch + kTransposedSide - 1) / kTransposedSide) * ((x.columns + kTransposedSide - 1) / kTransposedSide);
    const auto* const from = static_cast<const std::uint8_t*>(x.x.data);
    auto* const to = static_cast<std::uint8_t*>(x.y.data);
    const std::uint64_t bytes = static_cast<std::uint64_t>(x.pitch | x.columns) | address(from) | address(to);
    with_pack<16>(bytes, [&]<int N>() { launcher.teams(squares, 256, TransposeBytes<N>{from, to, x.rows, x.columns, x.pitch}); });
}

}  // namespace mgplan::runtime::cuda
