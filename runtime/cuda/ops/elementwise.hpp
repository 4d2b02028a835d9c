#pragma once
// See model/ops/elementwise.hpp.

#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/arrays.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

template <class From, class To>
struct Convert {
    const From* from;
    To* to;

    template <int N>
    MGPLAN_BOTH Pack<From, N> load(std::int64_t i) const {
        return load_pack<N>(from + i);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, const Pack<From, N>& values) const {
        Pack<To, N> result;
        for (int k = 0; k < N; ++k) result[k] = To(static_cast<Compute<To>>(Compute<From>(values[k])));
        store_pack<N>(to + i, result);
    }
};

template <class From, class To>
struct AddInto {
    const From* from;
    To* to;

    template <int N>
    struct Both {
        Pack<From, N> from;
        Pack<To, N> to;
    };
    template <int N>
    MGPLAN_BOTH Both<N> load(std::int64_t i) const {
        return {load_pack<N>(from + i), load_pack<N>(to + i)};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Both<N> both) const {
        for (int k = 0; k < N; ++k) both.to[k] = To(Compute<To>(both.to[k]) + static_cast<Compute<To>>(Compute<From>(both.from[k])));
        store_pack<N>(to + i, both.to);
    }
};

template <class Element>
struct Scale {
    Element* x;
    Compute<Element> factor;

    template <int N>
    MGPLAN_BOTH Pack<Element, N> load(std::int64_t i) const {
        return load_pack<N>(x + i);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Pack<Element, N> values) const {
        for (int k = 0; k < N; ++k) values[k] = Element(Compute<Element>(values[k]) * factor);
        store_pack<N>(x + i, values);
    }
};

template <class Element>
struct Fill {
    Element* x;
    Element value;

    template <int N>
    MGPLAN_BOTH Pack<Element, N> load(std::int64_t /*i*/) const {
        Pack<Element, N> values;
        for (int k = 0; k < N; ++k) values[k] = value;
        return values;
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, const Pack<Element, N>& values) const {
        store_pack<N>(x + i, values);
    }
};

template <class Element>
struct SoftCap {
    Element* x;
    Compute<Element> cap;

    template <int N>
    MGPLAN_BOTH Pack<Element, N> load(std::int64_t i) const {
        return load_pack<N>(x + i);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Pack<Element, N> values) const {
        for (int k = 0; k < N; ++k) values[k] = Element(cap * hyperbolic_tangent(Compute<Element>(values[k]) / cap));
        store_pack<N>(x + i, values);
    }
};

template <class Element>
struct Clip {
    using Value = Compute<Element>;
    Element* x;
    const Element* clipped;
    Value bound;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        if (clipped == nullptr) {
            const Value value = Value(x[i]);
            x[i] = Element(value > bound ? bound : value < -bound ? -bound : value);
            return;
        }
        const Value reached = Value(Element(bound)), value = Value(clipped[i]);
        if (value >= reached || value <= -reached) x[i] = Element(Value{0});
    }
};

/// Pieces of a flat array that one team each reduces. All but the last ones are whole packs of the narrowest type, so that those of an
/// aligned array are aligned.
MGPLAN_BOTH inline std::int64_t piece_length(std::int64_t elements, std::int64_t parts) {
    constexpr std::int64_t kWhole = 8;
    const std::int64_t share = (elements + parts - 1) / parts;
    return (share + kWhole - 1) / kWhole * kWhole;
}
MGPLAN_BOTH inline Piece piece_of(std::int64_t elements, std::int64_t parts, std::int64_t part) {
    const std::int64_t share = piece_length(elements, parts), begin = part * share;
    const std::int64_t left = elements - begin;
    return {begin, left < 0 ? 0 : (left < share ? left : share)};
}

/// Loads `Size` values at a time from a flat array, which may be aligned for packs or not.
template <bool kAligned, class Element>
struct LoadPacks {
    const Element* in;
    template <class Size>
    MGPLAN_BOTH auto operator()(Size /*size*/, std::int64_t i) const {
        if constexpr (kAligned) {
            return load_pack<Size::value>(in + i);
        } else {
            return gather_pack<Size::value>(in + i);
        }
    }
};

/// Squares of many arrays, the shares of which are their pieces: partial[share]. Adds in the same order whether an array is aligned for
/// packs or not, so that its sum depends on the number of values alone.
template <class Element>
struct SquaresOfArrays {
    struct Array {
        const Element* x;
        std::int64_t elements, parts;
        bool aligned;
    };
    ArrayList<Array> list;
    double* partial;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t share) const {
        const auto [array, index] = list.share_of(share);
        const Piece piece = piece_of(array.elements, array.parts, index);
        const Element* const x = array.x + piece.begin;
        const auto square = [](const auto& pack, int k) {
            const auto value = static_cast<double>(Compute<Element>(pack[k]));
            return value * value;
        };
        const double sum = array.aligned
                               ? team.template reduce_packs<kPack<Element>>(piece.count, 0.0, Add{}, LoadPacks<true, Element>{x}, square)
                               : team.template reduce_packs<kPack<Element>>(piece.count, 0.0, Add{}, LoadPacks<false, Element>{x}, square);
        team.once([&] { partial[share] = sum; });
    }
};

/// The sum of each array's partial sums, a team for each array.
struct SumsOfPartials {
    struct Array {
        const double* partial;
        double* sum;
        std::int64_t parts;
    };
    ArrayList<Array> list;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const Array& array = list.arrays[index];
        const double sum = team.reduce(array.parts, 0.0, Add{}, [&](std::int64_t i) { return array.partial[i]; });
        team.once([&] { *array.sum = sum; });
    }
};

/// Words of values that are moved without looking at them; the widest are sixteen bytes, so a pack is one word.
template <class Word>
struct CopyColumns {
    const Word* from;
    Word* to;
    std::int64_t width, from_pitch, to_pitch;

    template <int N>
    MGPLAN_BOTH Word load(std::int64_t i) const {
        const auto [row, column] = row_column(i, width);
        return from[row * from_pitch + column];
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Word word) const {
        const auto [row, column] = row_column(i, width);
        to[row * to_pitch + column] = word;
    }
};

template <class Word>
struct SwapLeading {
    const Word* from;
    Word* to;
    std::int64_t a, b, c;

    template <int N>
    MGPLAN_BOTH Word load(std::int64_t i) const {
        const auto [row, column] = row_column(i, c);  // of the result: (b, a, c)
        const auto [outer, inner] = row_column(row, a);
        return from[(inner * b + outer) * c + column];
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Word word) const {
        to[i] = word;
    }
};

template <class Launcher>
void copy(model::Device& device, const model::ElementwiseArguments& x) {
    auto&& launcher = Launcher::of(device);
    if (x.from.dtype == x.to.dtype) {
        launcher.copy(x.to.data, x.from.data, x.elements * bytes_of(x.from.dtype));
        return;
    }
    with_type(x.from.dtype, [&]<class From>() {
        with_type(x.to.dtype, [&]<class To>() {
            each_pack<kPack<From, To>>(launcher, x.elements, address(x.from.data) | address(x.to.data),
                                       Convert<From, To>{values<From>(x.from), values<To>(x.to)});
        });
    });
}

template <class Launcher>
void add(model::Device& device, const model::ElementwiseArguments& x) {
    with_types(x.from.dtype, x.to.dtype, [&]<class From, class To>() {
        each_pack<kPack<From, To>>(Launcher::of(device), x.elements, address(x.from.data) | address(x.to.data),
                                   AddInto<From, To>{values<From>(x.from), values<To>(x.to)});
    });
}

template <class Launcher>
void scale(model::Device& device, const model::ScalarArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        each_pack<kPack<Element>>(Launcher::of(device), x.elements, address(x.x.data),
                                  Scale<Element>{values<Element>(x.x), static_cast<Compute<Element>>(x.value)});
    });
}

template <class Launcher>
void soft_cap(model::Device& device, const model::ScalarArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        each_pack<kPack<Element>>(Launcher::of(device), x.elements, address(x.x.data),
                                  SoftCap<Element>{values<Element>(x.x), static_cast<Compute<Element>>(x.value)});
    });
}

template <class Launcher>
void clip(model::Device& device, const model::ClipArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.elements,
                                  Clip<Element>{values<Element>(x.x), values<Element>(x.clipped), static_cast<Compute<Element>>(x.bound)});
    });
}

template <class Launcher>
void fill(model::Device& device, const model::ScalarArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        each_pack<kPack<Element>>(Launcher::of(device), x.elements, address(x.x.data),
                                  Fill<Element>{values<Element>(x.x), Element(static_cast<Compute<Element>>(x.value))});
    });
}

template <class Launcher>
void sums_of_squares(model::Device& device, const model::SumsOfSquaresArguments& x) {
    auto&& launcher = Launcher::of(device);
    double* const all = values<double>(x.scratch);
    double* partial = all;  // of one array after the other
    const auto parts_of = [&](std::int64_t i) { return model::reduction_parts(x.arrays[i].elements); };
    for (std::int64_t from = 0, end = 0; from < x.count; from = end) {
        const Dtype dtype = x.arrays[from].x.dtype;  // of all up to the end
        while (end < x.count && x.arrays[end].x.dtype == dtype) ++end;
        with_type(dtype, [&]<class Element>() {
            using Body = SquaresOfArrays<Element>;
            const auto make = [&](std::int64_t i) {
                const model::SquaredArray& array = x.arrays[from + i];
                return typename Body::Array{values<Element>(array.x), array.elements, parts_of(from + i),
                                            address(array.x.data) % sizeof(Word16) == 0};
            };
            each_list<typename Body::Array>(
                end - from, make, [&](std::int64_t i) { return parts_of(from + i); },
                [&](const auto& list, std::int64_t shares) {
                    launcher.teams(shares, 256, Body{list, partial});
                    partial += shares;
                });
        });
    }
    std::int64_t begin = 0;
    const auto make = [&](std::int64_t i) {
        begin += parts_of(i);
        return SumsOfPartials::Array{all + begin - parts_of(i), values<double>(x.arrays[i].sum), parts_of(i)};
    };
    each_list<SumsOfPartials::Array>(
        x.count, make, [](std::int64_t /*i*/) { return std::int64_t{1}; },
        [&](const auto& list, std::int64_t shares) { launcher.teams(shares, 256, SumsOfPartials{list}); });
}

template <class Element>
struct ScaleColumns {
    Element* x;
    std::int64_t width, pitch;
    Compute<Element> factor;
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, column] = row_column(index, width);
        Element& value = x[row * pitch + column];
        value = Element(Compute<Element>(value) * factor);
    }
};

template <class Launcher>
void scale_columns(model::Device& device, const model::ScaleColumnsArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.rows * x.width, ScaleColumns<Element>{values<Element>(x.x) + x.begin, x.width, x.pitch,
                                                                          static_cast<Compute<Element>>(x.factor)});
    });
}

template <class Launcher>
void copy_columns(model::Device& device, const model::ColumnsArguments& x) {
    const std::int64_t size = bytes_of(x.from.dtype);
    const auto* const from = static_cast<const std::byte*>(x.from.data) + x.from_begin * size;
    auto* const to = static_cast<std::byte*>(x.to.data) + x.to_begin * size;
    const auto bytes = static_cast<std::uint64_t>(x.width * size) | static_cast<std::uint64_t>(x.from_pitch * size) |
                       static_cast<std::uint64_t>(x.to_pitch * size) | address(from) | address(to);
    with_word(bytes, [&]<class Word>() {
        constexpr auto kWord = static_cast<std::int64_t>(sizeof(Word));
        const std::int64_t width = x.width * size / kWord;
        Launcher::of(device).template packs<1>(x.rows * width,
                                               CopyColumns<Word>{reinterpret_cast<const Word*>(from), reinterpret_cast<Word*>(to), width,
                                                                 x.from_pitch * size / kWord, x.to_pitch * size / kWord});
    });
}

template <class Launcher>
void swap_leading(model::Device& device, const model::SwapLeadingArguments& x) {
    const std::int64_t row = x.c * bytes_of(x.x.dtype);
    with_word(static_cast<std::uint64_t>(row) | address(x.x.data) | address(x.y.data), [&]<class Word>() {
        const std::int64_t words = row / static_cast<std::int64_t>(sizeof(Word));
        Launcher::of(device).template packs<1>(x.a * x.b * words, SwapLeading<Word>{values<Word>(x.x), values<Word>(x.y), x.a, x.b, words});
    });
}

}  // namespace mgplan::runtime::cuda
