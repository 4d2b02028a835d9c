#pragma once
// See model/ops/rotary.hpp.

#include "runtime/cuda/ops/elementwise.hpp"

namespace mgplan::runtime::cuda {

/// Maps the index of a head to its place in the row: the same.
struct EveryHead {
    MGPLAN_BOTH std::int64_t at(std::int64_t head) const { return head; }
};
/// Queries and keys of a packed projection: after each `members` of them one head, a value, is left out.
struct QueriesAndKeys {
    std::int64_t members;
    MGPLAN_BOTH std::int64_t at(std::int64_t head) const { return head + row_column(head, members).row; }
};

/// All sequences and heads of one place. Cosines and sines of its angles, in fp64 until they are rounded, are computed once for a
/// table that the lanes share. N: values that are turned together. x may be y: a lane reads no other
/// values than those that it writes.
template <class Element, int N, class Heads>
struct Rotate {
    using Sum = Compute<Element>;
    static constexpr std::int64_t kMostAngles = 128;  ///< of the table: half of a head of 256 values

    const Element* x;
    Element* y;
    model::Positions positions;
    std::int64_t vectors;  ///< of one place: sequences · heads
    std::int64_t head_dim, rotated;
    model::RotaryAngles angles;
    bool inverse;
    Heads heads;

    template <int Size>
    struct Pairs {
        Pack<Element, Size> first, second;
    };

    MGPLAN_BOTH double angle_of(std::int64_t place, std::int64_t lane) const {
        const double f = pow(angles.base, -2.0 * static_cast<double>(lane) / static_cast<double>(rotated));
        const double ramp = angles.offset + angles.by_index * static_cast<double>(lane) + angles.by_frequency * f;
        const double m = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        return static_cast<double>(positions.at(place)) * (f * (m + (1 - m) / angles.factor));
    }
    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t place) const {
        Sum* const cosines = team.template shared<Sum, 2 * kMostAngles>();
        Sum* const sines = cosines + kMostAngles;
        const std::int64_t half = rotated / 2, row = heads.at(vectors) * head_dim;
        for (std::int64_t begin = 0; begin < half; begin += kMostAngles) {
            const std::int64_t count = half - begin < kMostAngles ? half - begin : kMostAngles;
            team.each(count, [&](std::int64_t i) {
                const double angle = angle_of(place, begin + i);
                cosines[i] = static_cast<Sum>(cos(angle) * angles.magnitude);
                sines[i] = static_cast<Sum>((inverse ? -sin(angle) : sin(angle)) * angles.magnitude);
            });
            team.barrier();
            const auto load = [&](auto size, std::int64_t i) {
                constexpr int kSize = decltype(size)::value;
                const auto [vector, lane] = row_column(i, count);
                const Element* const from = x + place * row + heads.at(vector) * head_dim + begin + lane;
                return Pairs<kSize>{load_pack<kSize>(from), load_pack<kSize>(from + half)};
            };
            team.template each_pack<N>(vectors * count, load, [&](auto size, std::int64_t i, auto pairs) {
                constexpr int kSize = decltype(size)::value;
                const auto [vector, lane] = row_column(i, count);
                for (int k = 0; k < kSize; ++k) {
                    const Sum a = pairs.first[k], b = pairs.second[k], c = cosines[lane + k], s = sines[lane + k];
                    pairs.first[k] = Element(a * c - b * s);
                    pairs.second[k] = Element(b * c + a * s);
                }
                Element* const to = y + place * row + heads.at(vector) * head_dim + begin + lane;
                store_pack<kSize>(to, pairs.first);
                store_pack<kSize>(to + half, pairs.second);
            });
            team.barrier();
        }
    }
};

template <class Launcher>
void rotary(model::Device& device, const model::RotaryArguments& x) {
    const std::int64_t places = x.positions.places(), vectors = x.positions.batch * x.heads, left = x.head_dim - x.rotated;
    if (left > 0 && x.members == 0)
        copy_columns<Launcher>(device, {x.x, x.y, places * vectors, left, x.head_dim, x.rotated, x.head_dim, x.rotated});
    if (x.rotated == 0) return;
    with_type(x.x.dtype, [&]<class Element>() {
        const std::uint64_t bytes =
            address(x.x.data) | address(x.y.data) | static_cast<std::uint64_t>((x.rotated / 2) | x.head_dim) * sizeof(Element);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            const auto turn = [&]<class Heads>(const Heads& heads) {
                Launcher::of(device).teams(places, 256,
                                           Rotate<Element, N, Heads>{values<Element>(x.x), values<Element>(x.y), x.positions, vectors,
                                                                     x.head_dim, x.rotated, x.angles, x.inverse, heads});
            };
            if (x.members > 0)
                turn(QueriesAndKeys{x.members});
            else
                turn(EveryHead{});
        });
    });
}

}  // namespace mgplan::runtime::cuda
