#pragma once
// See model/ops/bias.hpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Element>
struct AddBias {
    Element* x;
    const Element* bias;
    std::int64_t width;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        using Sum = Compute<Element>;
        x[i] = Element(Sum(x[i]) + Sum(bias[row_column(i, width).column]));
    }
};

template <class Element>
struct BiasColumns {
    using Sum = Compute<Element>;
    const Element* dy;
    Sum* sums;
    std::int64_t rows, width, rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, column] = row_column(index, width);
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        Sum sum = 0;
        for (std::int64_t row = begin; row < end; ++row) sum += Sum(dy[row * width + column]);
        sums[index] = sum;
    }
};

template <class Launcher>
void add_bias(model::Device& device, const model::AddBiasArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.rows * x.width, AddBias<Element>{values<Element>(x.x), values<Element>(x.bias), x.width});
    });
}

template <class Launcher>
void bias_gradient(model::Device& device, const model::BiasGradientArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.dy.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        launcher.each(x.parts * x.width, BiasColumns<Element>{values<Element>(x.dy), values<Sum>(x.column_sums), x.rows, x.width,
                                                              (x.rows + x.parts - 1) / x.parts});
    });
    add_column_sums(launcher, x.dy.dtype, x.column_sums, 0, x.width, x.parts, x.width, x.gradient);
}

}  // namespace mgplan::runtime::cuda
