#pragma once
// See model/ops/bias.hpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// A body of packs.
template <class Element>
struct AddBias {
    using Sum = Compute<Element>;
    Element* x;
    const Element* bias;
    const Sum* weights;  ///< of rows; nullptr: 1
    std::int64_t width;

    template <int N>
    struct Loaded {
        Pack<Element, N> x, bias;
        Sum weight;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t i) const {
        const auto [row, column] = row_column(i, width);
        return {load_pack<N>(x + i), load_pack<N>(bias + column), weights == nullptr ? Sum{1} : weights[row]};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Loaded<N> loaded) const {
        for (int k = 0; k < N; ++k) loaded.x[k] = Element(Sum(loaded.x[k]) + loaded.weight * Sum(loaded.bias[k]));
        store_pack<N>(x + i, loaded.x);
    }
};

/// Sums over the rows of one part of N columns: (parts, width). Two rows are under way at once, and are added in order.
template <class Element, int N>
struct BiasColumns {
    using Sum = Compute<Element>;
    const Element* dy;
    const Sum* weights;  ///< as above
    Sum* sums;
    std::int64_t rows, width, rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, pack] = row_column(index, width / N);
        const std::int64_t column = pack * N;
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        Pack<Sum, N> of_columns{};
        const auto weight_of = [&](std::int64_t row) { return weights == nullptr ? Sum{1} : weights[row]; };
        const auto add = [&](const Pack<Element, N>& values, Sum weight) {
            for (int k = 0; k < N; ++k) of_columns[k] += weight * Sum(values[k]);
        };
        std::int64_t row = begin;
        for (; row + 1 < end; row += 2) {
            const auto one = load_pack<N>(dy + row * width + column), other = load_pack<N>(dy + (row + 1) * width + column);
            const Sum first = weight_of(row), second = weight_of(row + 1);
            add(one, first);
            add(other, second);
        }
        if (row < end) add(load_pack<N>(dy + row * width + column), weight_of(row));
        store_pack<N>(sums + part * width + column, of_columns);
    }
};

/// Gradient of each row's weight: dy · bias.
template <class Element, int N>
struct BiasWeightGradient {
    using Sum = Compute<Element>;
    const Element *dy, *bias;
    Sum* d_weights;
    std::int64_t width;

    template <int Size>
    struct Loaded {
        Pack<Element, Size> dy, bias;
    };
    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Sum sum = team.template reduce_packs<N>(
            width, Sum{0}, Add{},
            [&](auto size, std::int64_t i) {
                constexpr int kSize = decltype(size)::value;
                return Loaded<kSize>{load_pack<kSize>(dy + row * width + i), load_pack<kSize>(bias + i)};
            },
            [](const auto& loaded, int k) { return Sum(loaded.dy[k]) * Sum(loaded.bias[k]); });
        team.once([&] { d_weights[row] += sum; });
    }
};

template <class Launcher>
void add_bias(model::Device& device, const model::AddBiasArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        each_pack<kPack<Element>>(
            Launcher::of(device), x.rows * x.width,
            address(x.x.data) | address(x.bias.data) | static_cast<std::uint64_t>(x.width) * sizeof(Element),
            AddBias<Element>{values<Element>(x.x), values<Element>(x.bias), values<Compute<Element>>(x.row_weights), x.width});
    });
}

template <class Launcher>
void bias_gradient(model::Device& device, const model::BiasGradientArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.dy.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const std::uint64_t bytes =
            address(x.dy.data) | address(x.bias.data) | address(x.column_sums.data) | static_cast<std::uint64_t>(x.width) * sizeof(Element);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            launcher.each(x.parts * x.width / N,
                          BiasColumns<Element, N>{values<Element>(x.dy), values<Sum>(x.row_weights), values<Sum>(x.column_sums), x.rows,
                                                  x.width, (x.rows + x.parts - 1) / x.parts});
            if (x.row_weights.data != nullptr)
                launcher.teams(
                    x.rows, lanes_for(x.width / N),
                    BiasWeightGradient<Element, N>{values<Element>(x.dy), values<Element>(x.bias), values<Sum>(x.d_row_weights), x.width});
        });
    });
    add_column_sums(launcher, x.dy.dtype, x.column_sums, 0, x.width, x.parts, x.width, x.gradient);
}

}  // namespace mgplan::runtime::cuda
