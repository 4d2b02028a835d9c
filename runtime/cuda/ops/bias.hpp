#pragma once
// See model/ops/bias.hpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Element>
struct AddBias {
    using Sum = Compute<Element>;
    Element* x;
    const Element* bias;
    const Sum* weights;  ///< of rows; nullptr: 1
    std::int64_t width;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const auto [row, column] = row_column(i, width);
        x[i] = Element(Sum(x[i]) + (weights == nullptr ? Sum(bias[column]) : weights[row] * Sum(bias[column])));
    }
};

template <class Element>
struct BiasColumns {
    using Sum = Compute<Element>;
    const Element* dy;
    const Sum* weights;  ///< as above
    Sum* sums;
    std::int64_t rows, width, rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, column] = row_column(index, width);
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        Sum sum = 0;
        for (std::int64_t row = begin; row < end; ++row) {
            const Sum value = Sum(dy[row * width + column]);
            sum += weights == nullptr ? value : weights[row] * value;
        }
        sums[index] = sum;
    }
};

/// Gradient of each row's weight: dy · bias.
template <class Element>
struct BiasWeightGradient {
    using Sum = Compute<Element>;
    const Element *dy, *bias;
    Sum* d_weights;
    std::int64_t width;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Sum sum = team.reduce(width, Sum{0}, Add{}, [&](std::int64_t i) { return Sum(dy[row * width + i]) * Sum(bias[i]); });
        team.once([&] { d_weights[row] += sum; });
    }
};

template <class Launcher>
void add_bias(model::Device& device, const model::AddBiasArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.rows * x.width, AddBias<Element>{values<Element>(x.x), values<Element>(x.bias),
                                                                     values<Compute<Element>>(x.row_weights), x.width});
    });
}

template <class Launcher>
void bias_gradient(model::Device& device, const model::BiasGradientArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.dy.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        launcher.each(x.parts * x.width, BiasColumns<Element>{values<Element>(x.dy), values<Sum>(x.row_weights), values<Sum>(x.column_sums),
                                                              x.rows, x.width, (x.rows + x.parts - 1) / x.parts});
        if (x.row_weights.data != nullptr)
            launcher.teams(
                x.rows, lanes_for(x.width),
                BiasWeightGradient<Element>{values<Element>(x.dy), values<Element>(x.bias), values<Sum>(x.d_row_weights), x.width});
    });
    add_column_sums(launcher, x.dy.dtype, x.column_sums, 0, x.width, x.parts, x.width, x.gradient);
}

}  // namespace mgplan::runtime::cuda
