#pragma once
// See model/ops/gated_norm.hpp; the formulas are those of runtime/cpu/ops/gated_norm.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// What forward and backward read. A team works on one group of one row.
template <class Element>
struct GatedNormInputs {
    using Sum = Compute<Element>;
    const Element *x, *gate, *weight;
    Sum* inverse_deviation;
    std::int64_t width, group, weight_width, gate_pitch, gate_begin;
    bool gate_first, sigmoid_gate;

    [[nodiscard]] MGPLAN_BOTH std::int64_t gate_at(std::int64_t row, std::int64_t column) const {
        return row * gate_pitch + gate_begin + column;
    }
    [[nodiscard]] MGPLAN_BOTH Sum z(std::int64_t row, std::int64_t column) const { return gate[gate_at(row, column)]; }
    [[nodiscard]] MGPLAN_BOTH Sum gated(std::int64_t row, std::int64_t column) const {
        return (sigmoid_gate ? Sum{1} : z(row, column)) / (1 + exponential(-z(row, column)));
    }
    [[nodiscard]] MGPLAN_BOTH Sum inner(std::int64_t row, std::int64_t column) const {
        const Sum value = x[row * width + column];
        return gate_first ? value * gated(row, column) : value;
    }
    [[nodiscard]] MGPLAN_BOTH Sum scale(std::int64_t column) const {
        return weight != nullptr ? Sum(weight[column % weight_width]) : Sum{1};
    }
    [[nodiscard]] MGPLAN_BOTH Sum inverse(std::int64_t row, std::int64_t column) const {
        return weight != nullptr ? inverse_deviation[row * (width / group) + column / group] : Sum{1};
    }
};

template <class Element>
struct GatedNormGroup {
    using Sum = Compute<Element>;
    GatedNormInputs<Element> in;
    Element* y;
    Sum epsilon;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [row, number] = row_column(index, in.width / in.group);
        const std::int64_t r = row, begin = number * in.group;
        Sum inverse = 1;
        if (in.weight != nullptr) {
            const Sum squares = team.reduce(in.group, Sum{0}, Add{}, [&](std::int64_t i) {
                const Sum value = in.inner(r, begin + i);
                return value * value;
            });
            inverse = 1 / square_root(squares / static_cast<Sum>(in.group) + epsilon);
        }
        team.each(in.group, [&](std::int64_t i) {
            const Sum gate = in.gate_first ? Sum{1} : in.gated(r, begin + i);
            y[r * in.width + begin + i] = Element(in.inner(r, begin + i) * inverse * in.scale(begin + i) * gate);
        });
        team.once([&] {
            if (in.weight != nullptr) in.inverse_deviation[index] = inverse;
        });
    }
};

template <class Element>
struct GatedNormGradient {
    using Sum = Compute<Element>;
    GatedNormInputs<Element> in;
    const Element* dy;
    Element *dx, *d_gate;

    /// Gradient of the normalised values times their weight.
    [[nodiscard]] MGPLAN_BOTH Sum outer(std::int64_t row, std::int64_t column) const {
        const Sum value = dy[row * in.width + column];
        return in.gate_first ? value : value * in.gated(row, column);
    }

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [row, number] = row_column(index, in.width / in.group);
        const std::int64_t r = row, begin = number * in.group;
        const Sum inverse = in.inverse(r, begin);
        const auto normal = [&](std::int64_t column) { return in.inner(r, column) * inverse; };
        const auto slope = [&](std::int64_t column) { return outer(r, column) * in.scale(column); };
        Sum along = 0;
        if (in.weight != nullptr)
            along = team.reduce(in.group, Sum{0}, Add{}, [&](std::int64_t i) { return slope(begin + i) * normal(begin + i); }) /
                    static_cast<Sum>(in.group);
        team.each(in.group, [&](std::int64_t i) {
            const std::int64_t column = begin + i;
            const Sum z = in.z(r, column), s = 1 / (1 + exponential(-z)),
                      gate_slope = in.sigmoid_gate ? s * (1 - s) : s * (1 + z * (1 - s));
            const Sum du = inverse * (slope(column) - normal(column) * along);
            const Sum of_gate =
                in.gate_first ? du * Sum(in.x[r * in.width + column]) : Sum(dy[r * in.width + column]) * normal(column) * in.scale(column);
            dx[r * in.width + column] = Element(in.gate_first ? du * in.gated(r, column) : du);
            d_gate[in.gate_at(r, column)] = Element(of_gate * gate_slope);
        });
    }
};

/// Sums over the rows of one part, and over the groups that share a weight: (parts, weight_width).
template <class Element>
struct GatedNormColumns {
    using Sum = Compute<Element>;
    GatedNormGradient<Element> of;
    Sum* sums;
    std::int64_t rows, rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [part, weight] = row_column(index, of.in.weight_width);
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        Sum sum = 0;
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t column = weight; column < of.in.width; column += of.in.weight_width)
                sum += of.outer(row, column) * of.in.inner(row, column) * of.in.inverse(row, column);
        }
        sums[index] = sum;
    }
};

template <class Element, class Arguments>
GatedNormInputs<Element> gated_norm_inputs(const Arguments& x, const void* inverse_deviation) {
    using Sum = Compute<Element>;
    return {values<Element>(x.x),
            values<Element>(x.gate),
            values<Element>(x.weight),
            static_cast<Sum*>(const_cast<void*>(inverse_deviation)),
            x.width,
            x.group,
            x.weight_width,
            x.gate_pitch,
            x.gate_begin,
            x.gate_first,
            x.sigmoid_gate};
}

template <class Launcher>
void gated_norm(model::Device& device, const model::GatedNormArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).teams(x.rows * (x.width / x.group), lanes_for(x.group),
                                   GatedNormGroup<Element>{gated_norm_inputs<Element>(x, x.inverse_deviation.data), values<Element>(x.y),
                                                           static_cast<Compute<Element>>(x.epsilon)});
    });
}

template <class Launcher>
void gated_norm_backward(model::Device& device, const model::GatedNormBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const GatedNormGradient<Element> body{gated_norm_inputs<Element>(x, x.inverse_deviation.data), values<Element>(x.dy),
                                              values<Element>(x.dx), values<Element>(x.d_gate)};
        launcher.teams(x.rows * (x.width / x.group), lanes_for(x.group), body);
        if (x.weight.data != nullptr)
            launcher.each(x.parts * x.weight_width,
                          GatedNormColumns<Element>{body, values<Sum>(x.column_sums), x.rows, (x.rows + x.parts - 1) / x.parts});
    });
    if (x.weight.data != nullptr)
        add_column_sums(launcher, x.x.dtype, x.column_sums, 0, x.weight_width, x.parts, x.weight_width, x.weight_gradient);
}

}  // namespace mgplan::runtime::cuda
