#pragma once
// See model/ops/norm.hpp; the formulas are those of runtime/cpu/ops/norm.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Element>
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
        Sum middle = 0;
        if (centred) middle = team.reduce(width, Sum{0}, Add{}, [&](std::int64_t i) { return Sum(in[i]); }) / count;
        const Sum variance = team.reduce(width, Sum{0}, Add{}, [&](std::int64_t i) {
            const Sum off = Sum(in[i]) - middle;
            return off * off;
        }) / count;
        const Sum inverse = 1 / square_root(variance + epsilon);
        team.each(width, [&](std::int64_t i) {
            const Sum scaled = (Sum(in[i]) - middle) * inverse * Sum(weight[i]);
            out[i] = Element(bias != nullptr ? scaled + Sum(bias[i]) : scaled);
        });
        team.once([&] {
            if (centred) mean[row] = middle;
            inverse_deviation[row] = inverse;
        });
    }
};

template <class Element>
struct NormInputGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x, *weight;
    const Sum *mean, *inverse_deviation;
    Element* dx;
    std::int64_t width;
    bool centred;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Element* const in = x + row * width;
        const Element* const slope = dy + row * width;
        Element* const out = dx + row * width;
        const Sum count = static_cast<Sum>(width), middle = centred ? mean[row] : Sum{0}, inverse = inverse_deviation[row];
        const auto normal = [&](std::int64_t i) { return (Sum(in[i]) - middle) * inverse; };
        const auto inner = [&](std::int64_t i) { return Sum(slope[i]) * Sum(weight[i]); };
        Sum mean_gradient = 0;
        if (centred) mean_gradient = team.reduce(width, Sum{0}, Add{}, inner) / count;
        const Sum along = team.reduce(width, Sum{0}, Add{}, [&](std::int64_t i) { return inner(i) * normal(i); }) / count;
        team.each(width, [&](std::int64_t i) { out[i] = Element(inverse * (inner(i) - mean_gradient - normal(i) * along)); });
    }
};

/// Sums over the rows of one part: (parts, 2, width), those of the weight and those of the bias.
template <class Element>
struct NormColumns {
    using Sum = Compute<Element>;
    const Element *dy, *x;
    const Sum *mean, *inverse_deviation;
    Sum* sums;
    std::int64_t rows, width, rows_per_part;
    bool centred;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, column] = row_column(index, width);
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        Sum weight_sum = 0, bias_sum = 0;
        for (std::int64_t row = begin; row < end; ++row) {
            const Sum slope = dy[row * width + column];
            weight_sum += slope * (Sum(x[row * width + column]) - (centred ? mean[row] : Sum{0})) * inverse_deviation[row];
            bias_sum += slope;
        }
        sums[2 * part * width + column] = weight_sum;
        sums[(2 * part + 1) * width + column] = bias_sum;
    }
};

template <class Launcher>
void norm(model::Device& device, const model::NormArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        launcher.teams(x.rows, lanes_for(x.width),
                       NormRow<Element>{values<Element>(x.x), values<Element>(x.weight), values<Element>(x.bias), values<Element>(x.y),
                                        values<Sum>(x.mean), values<Sum>(x.inverse_deviation), x.width, x.kind == Normalization::layer_norm,
                                        static_cast<Sum>(x.epsilon)});
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
        launcher.teams(x.rows, lanes_for(x.width),
                       NormInputGradient<Element>{values<Element>(x.dy), values<Element>(x.x), values<Element>(x.weight), mean, inverse,
                                                  values<Element>(x.dx), x.width, centred});
        launcher.each(x.parts * x.width,
                      NormColumns<Element>{values<Element>(x.dy), values<Element>(x.x), mean, inverse, values<Sum>(x.column_sums), x.rows,
                                           x.width, (x.rows + x.parts - 1) / x.parts, centred});
    });
    add_column_sums(launcher, x.x.dtype, x.column_sums, 0, 2 * x.width, x.parts, x.width, x.weight_gradient);
    if (x.bias_gradient.data != nullptr) {
        add_column_sums(launcher, x.x.dtype, x.column_sums, x.width, 2 * x.width, x.parts, x.width, x.bias_gradient);
    }
}

}  // namespace mgplan::runtime::cuda
