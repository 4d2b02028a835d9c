#pragma once
// See model/ops/norm.hpp; the formulas are those of runtime/cpu/ops/norm.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// N: values of a row that are loaded together. A norm without weights is a kernel of its own: a check at run time would cost the
/// others registers.
template <class Element, int N, bool Weighted>
struct NormRow {
    using Sum = Compute<Element>;
    const Element *x, *weight, *bias;
    Element* y;
    Sum *mean, *inverse_deviation;
    std::int64_t width;
    bool centred;
    Sum epsilon;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Element* const in = x + row * width;
        Element* const out = y + row * width;
        const Sum count = static_cast<Sum>(width);
        const auto load = [&](auto size, std::int64_t i) { return load_pack<decltype(size)::value>(in + i); };
        Sum middle = 0;
        if (centred) {
            middle =
                team.template reduce_packs<N>(width, Sum{0}, Add{}, load, [](const auto& pack, int k) { return Sum(pack[k]); }) / count;
        }
        const Sum variance = team.template reduce_packs<N>(width, Sum{0}, Add{}, load, [&](const auto& pack, int k) {
            const Sum off = Sum(pack[k]) - middle;
            return off * off;
        }) / count;
        const Sum inverse = 1 / square_root(variance + epsilon);
        team.template each_pack<N>(width, load, [&](auto size, std::int64_t i, const auto& pack) {
            constexpr int kSize = decltype(size)::value;
            const Element* const scale = Weighted ? weight : in;
            const auto scales = load_pack<kSize>(scale + i), shifts = load_pack<kSize>((bias != nullptr ? bias : scale) + i);
            Pack<Element, kSize> result;
            for (int k = 0; k < kSize; ++k) {
                const Sum scaled = (Sum(pack[k]) - middle) * inverse * (Weighted ? Sum(scales[k]) : Sum{1});
                result[k] = Element(bias != nullptr ? scaled + Sum(shifts[k]) : scaled);
            }
            store_pack<kSize>(out + i, result);
        });
        team.once([&] {
            if (centred) mean[row] = middle;
            inverse_deviation[row] = inverse;
        });
    }
};

/// Added: another gradient is added to the rounded one.
template <class Element, int N, bool Added, bool Weighted>
struct NormInputGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x, *weight, *added;
    const Sum *mean, *inverse_deviation;
    Element* dx;
    std::int64_t width;
    bool centred;

    template <int Size>
    struct Loaded {
        Pack<Element, Size> x, dy, weight;
    };
    template <int Size>
    struct WithAdded {
        Loaded<Size> own;
        Pack<Element, Size> added;
    };
    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Element* const in = x + row * width;
        const Element* const slope = dy + row * width;
        Element* const out = dx + row * width;
        const Sum count = static_cast<Sum>(width), middle = centred ? mean[row] : Sum{0}, inverse = inverse_deviation[row];
        const auto load = [&](auto size, std::int64_t i) {
            constexpr int kSize = decltype(size)::value;
            return Loaded<kSize>{load_pack<kSize>(in + i), load_pack<kSize>(slope + i), load_pack<kSize>((Weighted ? weight : in) + i)};
        };
        const auto normal = [&](const auto& pack, int k) { return (Sum(pack.x[k]) - middle) * inverse; };
        const auto inner = [](const auto& pack, int k) { return Weighted ? Sum(pack.dy[k]) * Sum(pack.weight[k]) : Sum(pack.dy[k]); };
        Sum mean_gradient = 0;
        if (centred) mean_gradient = team.template reduce_packs<N>(width, Sum{0}, Add{}, load, inner) / count;
        const Sum along = team.template reduce_packs<N>(width, Sum{0}, Add{}, load, [&](const auto& pack, int k) {
            return inner(pack, k) * normal(pack, k);
        }) / count;
        const auto gradient = [&](const auto& pack, int k) {
            return Element(inverse * (inner(pack, k) - mean_gradient - normal(pack, k) * along));
        };
        if constexpr (Added) {
            const Element* const more = added + row * width;
            const auto load_both = [&](auto size, std::int64_t i) {
                constexpr int kSize = decltype(size)::value;
                return WithAdded<kSize>{load(size, i), load_pack<kSize>(more + i)};
            };
            team.template each_pack<N>(width, load_both, [&](auto size, std::int64_t i, const auto& both) {
                constexpr int kSize = decltype(size)::value;
                Pack<Element, kSize> result;
                for (int k = 0; k < kSize; ++k) result[k] = Element(Sum(gradient(both.own, k)) + Sum(both.added[k]));
                store_pack<kSize>(out + i, result);
            });
        } else {
            team.template each_pack<N>(width, load, [&](auto size, std::int64_t i, const auto& pack) {
                constexpr int kSize = decltype(size)::value;
                Pack<Element, kSize> result;
                for (int k = 0; k < kSize; ++k) result[k] = gradient(pack, k);
                store_pack<kSize>(out + i, result);
            });
        }
    }
};

/// Sums over the rows of one part of N columns: (parts, 2, width), those of the weight and those of the bias. Two rows are under way at
/// once, and are added in order.
template <class Element, int N>
struct NormColumns {
    using Sum = Compute<Element>;
    const Element *dy, *x;
    const Sum *mean, *inverse_deviation;
    Sum* sums;
    std::int64_t rows, width, rows_per_part;
    bool centred;

    struct Row {
        Pack<Element, N> dy, x;
        Sum mean, inverse;
    };
    MGPLAN_BOTH Row load(std::int64_t row, std::int64_t column) const {
        return {load_pack<N>(dy + row * width + column), load_pack<N>(x + row * width + column), centred ? mean[row] : Sum{0},
                inverse_deviation[row]};
    }
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, pack] = row_column(index, width / N);
        const std::int64_t column = pack * N;
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        Pack<Sum, N> weight_sums{}, bias_sums{};
        const auto add = [&](const Row& row) {
            for (int k = 0; k < N; ++k) {
                const Sum slope = row.dy[k];
                weight_sums[k] += slope * (Sum(row.x[k]) - row.mean) * row.inverse;
                bias_sums[k] += slope;
            }
        };
        std::int64_t row = begin;
        for (; row + 1 < end; row += 2) {
            const Row one = load(row, column), other = load(row + 1, column);
            add(one);
            add(other);
        }
        if (row < end) add(load(row, column));
        store_pack<N>(sums + 2 * part * width + column, weight_sums);
        store_pack<N>(sums + (2 * part + 1) * width + column, bias_sums);
    }
};

/// Calls work.operator()<bool>() with whether these values are there.
template <class Work>
void with_presence(const model::Input& input, Work&& work) {
    if (input.data != nullptr)
        work.template operator()<true>();
    else
        work.template operator()<false>();
}

template <class Launcher>
void norm(model::Device& device, const model::NormArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const std::uint64_t bytes = address(x.x.data) | address(x.weight.data) | address(x.bias.data) | address(x.y.data) |
                                    static_cast<std::uint64_t>(x.width) * sizeof(Element);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            with_presence(x.weight, [&]<bool Weighted>() {
                launcher.teams(x.rows, lanes_for(x.width / N),
                               NormRow<Element, N, Weighted>{values<Element>(x.x), values<Element>(x.weight), values<Element>(x.bias),
                                                             values<Element>(x.y), values<Sum>(x.mean), values<Sum>(x.inverse_deviation),
                                                             x.width, x.kind == Normalization::layer_norm, static_cast<Sum>(x.epsilon)});
            });
        });
    });
}

template <class Launcher>
void norm_backward(model::Device& device, const model::NormBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    const bool centred = x.kind == Normalization::layer_norm;
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Sum* const mean = values<Sum>(x.mean);
        const Sum* const inverse = values<Sum>(x.inverse_deviation);
        const std::uint64_t bytes = address(x.dy.data) | address(x.x.data) | address(x.weight.data) | address(x.dx.data) |
                                    address(x.added.data) | address(x.column_sums.data) |
                                    static_cast<std::uint64_t>(x.width) * sizeof(Element);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            with_presence(x.weight, [&]<bool Weighted>() {
                with_presence(x.added, [&]<bool Added>() {
                    launcher.teams(x.rows, lanes_for(x.width / N),
                                   NormInputGradient<Element, N, Added, Weighted>{values<Element>(x.dy), values<Element>(x.x),
                                                                                  values<Element>(x.weight), values<Element>(x.added), mean,
                                                                                  inverse, values<Element>(x.dx), x.width, centred});
                });
            });
            if (x.weight_gradient.data == nullptr) return;
            launcher.each(x.parts * x.width / N,
                          NormColumns<Element, N>{values<Element>(x.dy), values<Element>(x.x), mean, inverse, values<Sum>(x.column_sums),
                                                  x.rows, x.width, (x.rows + x.parts - 1) / x.parts, centred});
        });
    });
    if (x.weight_gradient.data == nullptr) return;
    add_column_sums(launcher, x.x.dtype, x.column_sums, 0, 2 * x.width, x.parts, x.width, x.weight_gradient);
    if (x.bias_gradient.data != nullptr) {
        add_column_sums(launcher, x.x.dtype, x.column_sums, x.width, 2 * x.width, x.parts, x.width, x.bias_gradient);
    }
}

}  // namespace mgplan::runtime::cuda
