#pragma once
// See model/ops/fp8.hpp.

#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/elementwise.hpp"
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

/// The largest magnitude of a piece of a flat array, into what begins at 0. Which team comes first changes nothing.
template <class Element, bool kAligned>
struct LargestOfPiece {
    const Element* x;
    float* largest;
    std::int64_t elements, parts;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t part) const {
        const Piece piece = piece_of(elements, parts, part);
        const Element* const in = x + piece.begin;
        const auto load = [&](auto size, std::int64_t i) {
            constexpr int kSize = decltype(size)::value;
            if constexpr (kAligned) {
                return load_pack<kSize>(in + i);
            } else {
                return gather_pack<kSize>(in + i);
            }
        };
        const float most = team.template reduce_packs<kPack<Element>>(piece.count, 0.0F, LargerNumber{}, load, [](const auto& pack, int k) {
            const auto value = static_cast<float>(pack[k]);
            return value < 0 ? -value : value;
        });
        team.once([&] { raise_to(largest, most); });
    }
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

/// A square of so many bytes a side goes through memory that a team shares, so that both sides are read and written along rows.
inline constexpr int kTransposedSide = 64;

/// Word: what is read and written at once, 4 bytes or 1; rows and columns are multiples of it.
template <class Word>
struct TransposeBytes {
    static constexpr int kBytes = static_cast<int>(sizeof(Word));
    static constexpr int kPitch = kTransposedSide + 4;  // words of a column in different banks
    const std::uint8_t* x;
    std::uint8_t* y;
    std::int64_t rows, columns;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        constexpr std::int64_t kSide = kTransposedSide, kWords = kSide / kBytes;
        std::uint8_t* const square = team.template shared<std::uint8_t, kTransposedSide * kPitch>();
        const auto [down, across] = row_column(index, (columns + kSide - 1) / kSide);
        const std::int64_t first_row = down * kSide, first_column = across * kSide;
        team.each(kSide * kWords, [&](std::int64_t i) {
            const std::int64_t row = i / kWords, column = i % kWords * kBytes;
            if (first_row + row >= rows || first_column + column >= columns) return;
            Word word;
            memcpy(&word, x + (first_row + row) * columns + first_column + column, sizeof(word));
            for (int k = 0; k < kBytes; ++k) square[(column + k) * kPitch + row] = static_cast<std::uint8_t>(word >> (8 * k));
        });
        team.barrier();
        team.each(kSide * kWords, [&](std::int64_t i) {
            const std::int64_t column = i / kWords, row = i % kWords * kBytes;
            if (first_row + row >= rows || first_column + column >= columns) return;
            Word word = 0;
            for (int k = 0; k < kBytes; ++k) word |= static_cast<Word>(static_cast<Word>(square[column * kPitch + row + k]) << (8 * k));
            memcpy(y + (first_column + column) * rows + first_row + row, &word, sizeof(word));
        });
    }
};

template <class Launcher>
void largest(model::Device& device, const model::LargestArguments& x) {
    auto&& launcher = Launcher::of(device);
    launcher.zero(x.largest.data, bytes_of(Dtype::fp32));
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
    const auto cast = [&]<class Element, class Code>() {
        each_pack<kPack<Element, Code>>(
            launcher, x.elements, address(x.x.data) | address(x.codes.data),
            CastToFp8<Element, Code>{values<Element>(x.x), values<float>(x.largest), values<Code>(x.codes), values<float>(x.inverse)});
    };
    with_type(x.x.dtype, [&]<class Element>() {
        if (x.codes.dtype == Dtype::fp8)
            cast.template operator()<Element, E4m3>();
        else
            cast.template operator()<Element, E5m2>();
    });
}

template <class Launcher>
void transpose_bytes(model::Device& device, const model::TransposeBytesArguments& x) {
    auto&& launcher = Launcher::of(device);
    const std::int64_t squares = ((x.rows + kTransposedSide - 1) / kTransposedSide) * ((x.columns + kTransposedSide - 1) / kTransposedSide);
    const auto* const from = static_cast<const std::uint8_t*>(x.x.data);
    auto* const to = static_cast<std::uint8_t*>(x.y.data);
    const std::uint64_t bytes = static_cast<std::uint64_t>(x.rows | x.columns) | address(from) | address(to);
    if (bytes % sizeof(std::uint32_t) == 0)
        launcher.teams(squares, 256, TransposeBytes<std::uint32_t>{from, to, x.rows, x.columns});
    else
        launcher.teams(squares, 256, TransposeBytes<std::uint8_t>{from, to, x.rows, x.columns});
}

}  // namespace mgplan::runtime::cuda
