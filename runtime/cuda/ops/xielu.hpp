#pragma once
// See model/ops/xielu.hpp; the formulas are those of runtime/cpu/ops/xielu.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Element>
struct Xielu {
    using Sum = Compute<Element>;
    const Element *x, *positive, *negative;
    Element* y;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const Sum value = Sum(x[i]), half = Sum{0.5};
        if (value > 0)
            y[i] = Element(softplus(Sum(*positive)) * value * value + half * value);
        else
            y[i] = Element((half + softplus(Sum(*negative))) * (exponential_less_one(value) - value) + half * value);
    }
};

template <class Element>
struct XieluInputGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x, *positive, *negative;
    Element* dx;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const Sum value = Sum(x[i]), slope = Sum(dy[i]), half = Sum{0.5};
        if (value > 0)
            dx[i] = Element(slope * (2 * softplus(Sum(*positive)) * value + half));
        else
            dx[i] = Element(slope * ((half + softplus(Sum(*negative))) * exponential_less_one(value) + half));
    }
};

/// One trained value's sum over one part of the rows: (parts, 2).
template <class Element>
struct XieluSum {
    using Sum = Compute<Element>;
    const Element *dy, *x, *positive, *negative;
    Sum* sums;
    std::int64_t rows, width, rows_per_part;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const std::int64_t begin = index / 2 * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        const bool above = index % 2 == 0;
        const Sum outer = softplus_slope(Sum(above ? *positive : *negative));
        const Sum sum = team.reduce(end > begin ? (end - begin) * width : 0, Sum{0}, Add{}, [&](std::int64_t i) {
            const Sum value = Sum(x[begin * width + i]), slope = Sum(dy[begin * width + i]);
            if ((value > 0) != above) return Sum{0};
            return slope * outer * (above ? value * value : exponential_less_one(value) - value);
        });
        team.once([&] { sums[index] = sum; });
    }
};

template <class Launcher>
void xielu(model::Device& device, const model::XieluArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.elements, Xielu<Element>{values<Element>(x.x), values<Element>(x.positive), values<Element>(x.negative),
                                                             values<Element>(x.y)});
    });
}

template <class Launcher>
void xielu_backward(model::Device& device, const model::XieluBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        const Element* const dy = values<Element>(x.dy);
        const Element* const in = values<Element>(x.x);
        const Element* const positive = values<Element>(x.positive);
        const Element* const negative = values<Element>(x.negative);
        launcher.each(x.rows * x.width, XieluInputGradient<Element>{dy, in, positive, negative, values<Element>(x.dx)});
        launcher.teams(x.parts * 2, 256,
                       XieluSum<Element>{dy, in, positive, negative, values<Compute<Element>>(x.sums), x.rows, x.width,
                                         (x.rows + x.parts - 1) / x.parts});
    });
    add_column_sums(launcher, x.x.dtype, x.sums, 0, 2, x.parts, 1, x.d_positive);
    add_column_sums(launcher, x.x.dtype, x.sums, 1, 2, x.parts, 1, x.d_negative);
}

}  // namespace mgplan::runtime::cuda
