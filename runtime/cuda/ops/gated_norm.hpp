#pragma once
// See model/ops/gated_norm.hpp; the formulas are those of runtime/cpu/ops/gated_norm.cpp.

#include "runtime/cuda/ops/column_sums.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// Inputs of forward and backward. A team works on one group of one row.
template <class Element>
struct GatedNormInputs {
    using Sum = Compute<Element>;
    const Element *x, *gate, *weight;
    Sum* inverse_deviation;
    std::int64_t width, group, weight_width, gate_pitch, gate_begin;
    bool gate_first, sigmoid_gate;

    /// N columns of a row. Without weights `weight` holds other values, which are not used.
    template <int N>
    struct Loaded {
        Pack<Element, N> x, gate, weight;
    };
    template <int N>
    [[nodiscard]] MGPLAN_BOTH Loaded<N> load(std::int64_t row, std::int64_t column) const {
        const Element* const in = x + row * width + column;
        return {load_pack<N>(in), load_pack<N>(gate + gate_at(row, column)),
                load_pack<N>(weight != nullptr ? weight + column % weight_width : in)};
    }
    [[nodiscard]] MGPLAN_BOTH std::int64_t gate_at(std::int64_t row, std::int64_t column) const {
        return row * gate_pitch + gate_begin + column;
    }
    [[nodiscard]] MGPLAN_BOTH Sum gated(Sum z) const { return (sigmoid_gate ? Sum{1} : z) / (1 + exponential(-z)); }
    template <int N>
    [[nodiscard]] MGPLAN_BOTH Sum inner(const Loaded<N>& in, int k) const {
        return gate_first ? Sum(in.x[k]) * gated(in.gate[k]) : Sum(in.x[k]);
    }
    template <int N>
    [[nodiscard]] MGPLAN_BOTH Sum scale(const Loaded<N>& in, int k) const {
        return weight != nullptr ? Sum(in.weight[k]) : Sum{1};
    }
    [[nodiscard]] MGPLAN_BOTH Sum inverse(std::int64_t row, std::int64_t column) const {
        return weight != nullptr ? inverse_deviation[row * (width / group) + column / group] : Sum{1};
    }
};

/// N: columns that are loaded together.
template <class Element, int N>
struct GatedNormGroup {
    using Sum = Compute<Element>;
    GatedNormInputs<Element> in;
    Element* y;
    Sum epsilon;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const auto [row, number] = row_column(index, in.width / in.group);
        const std::int64_t r = row, begin = number * in.group;
        const auto load = [&](auto size, std::int64_t i) { return in.template load<decltype(size)::value>(r, begin + i); };
        Sum inverse = 1;
        if (in.weight != nullptr) {
            const Sum squares = team.template reduce_packs<N>(in.group, Sum{0}, Add{}, load, [&](const auto& loaded, int k) {
                const Sum value = in.inner(loaded, k);
                return value * value;
            });
            inverse = 1 / square_root(squares / static_cast<Sum>(in.group) + epsilon);
        }
        team.template each_pack<N>(in.group, load, [&](auto size, std::int64_t i, const auto& loaded) {
            constexpr int kSize = decltype(size)::value;
            Pack<Element, kSize> result;
            for (int k = 0; k < kSize; ++k) {
                const Sum gate = in.gate_first ? Sum{1} : in.gated(loaded.gate[k]);
                result[k] = Element(in.inner(loaded, k) * inverse * in.scale(loaded, k) * gate);
            }
            store_pack<kSize>(y + r * in.width + begin + i, result);
        });
        team.once([&] {
            if (in.weight != nullptr) in.inverse_deviation[index] = inverse;
        });
    }
};

/// Inputs of the backward: those of the forward, and dy.
template <class Element>
struct GatedNormSlopes {
    using Sum = Compute<Element>;
    GatedNormInputs<Element> in;
    const Element* dy;

    template <int N>
    struct Loaded {
        typename GatedNormInputs<Element>::template Loaded<N> own;
        Pack<Element, N> dy;
    };
    template <int N>
    [[nodiscard]] MGPLAN_BOTH Loaded<N> load(std::int64_t row, std::int64_t column) const {
        return {in.template load<N>(row, column), load_pack<N>(dy + row * in.width + column)};
    }
    /// Gradient of the normalised values times their weight.
    template <int N>
    [[nodiscard]] MGPLAN_BOTH Sum outer(const Loaded<N>& loaded, int k) const {
        return in.gate_first ? Sum(loaded.dy[k]) : Sum(loaded.dy[k]) * in.gated(loaded.own.gate[k]);
    }
};

template <class Element, int N>
struct GatedNormGradient {
    using Sum = Compute<Element>;
    GatedNormSlopes<Element> slopes;
    Element *dx, *d_gate;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t index) const {
        const GatedNormInputs<Element>& in = slopes.in;
        const auto [row, number] = row_column(index, in.width / in.group);
        const std::int64_t r = row, begin = number * in.group;
        const Sum inverse = in.inverse(r, begin);
        const auto load = [&](auto size, std::int64_t i) { return slopes.template load<decltype(size)::value>(r, begin + i); };
        const auto normal = [&](const auto& loaded, int k) { return in.inner(loaded.own, k) * inverse; };
        const auto slope = [&](const auto& loaded, int k) { return slopes.outer(loaded, k) * in.scale(loaded.own, k); };
        Sum along = 0;
        if (in.weight != nullptr)
            along = team.template reduce_packs<N>(in.group, Sum{0}, Add{}, load, [&](const auto& loaded, int k) {
                return slope(loaded, k) * normal(loaded, k);
            }) / static_cast<Sum>(in.group);
        team.template each_pack<N>(in.group, load, [&](auto size, std::int64_t i, const auto& loaded) {
            constexpr int kSize = decltype(size)::value;
            Pack<Element, kSize> of_x, of_gate;
            for (int k = 0; k < kSize; ++k) {
                const Sum z = loaded.own.gate[k], s = 1 / (1 + exponential(-z)),
                          gate_slope = in.sigmoid_gate ? s * (1 - s) : s * (1 + z * (1 - s));
                const Sum du = inverse * (slope(loaded, k) - normal(loaded, k) * along);
                const Sum moved =
                    in.gate_first ? du * Sum(loaded.own.x[k]) : Sum(loaded.dy[k]) * normal(loaded, k) * in.scale(loaded.own, k);
                of_x[k] = Element(in.gate_first ? du * in.gated(z) : du);
                of_gate[k] = Element(moved * gate_slope);
            }
            store_pack<kSize>(dx + r * in.width + begin + i, of_x);
            store_pack<kSize>(d_gate + in.gate_at(r, begin + i), of_gate);
        });
    }
};

/// Sums over the rows of one part, and over the groups that share a weight, of N weights: (parts, weight_width).
template <class Element, int N>
struct GatedNormColumns {
    using Sum = Compute<Element>;
    GatedNormSlopes<Element> slopes;
    Sum* sums;
    std::int64_t rows, rows_per_part;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const GatedNormInputs<Element>& in = slopes.in;
        const auto [part, pack] = row_column(index, in.weight_width / N);
        const std::int64_t first = pack * N;
        const std::int64_t begin = part * rows_per_part, end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
        Pack<Sum, N> of_weights{};
        for (std::int64_t row = begin; row < end; ++row) {
            for (std::int64_t column = first; column < in.width; column += in.weight_width) {
                const auto loaded = slopes.template load<N>(row, column);
                const Sum inverse = in.inverse(row, column);
                for (int k = 0; k < N; ++k) of_weights[k] += slopes.outer(loaded, k) * in.inner(loaded.own, k) * inverse;
            }
        }
        store_pack<N>(sums + part * in.weight_width + first, of_weights);
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

/// Addresses and lengths that packs must divide.
template <class Element, class Arguments>
std::uint64_t gated_norm_bytes(const Arguments& x) {
    const std::int64_t lengths = x.group | x.weight_width | x.gate_pitch | x.gate_begin;
    return address(x.x.data) | address(x.gate.data) | address(x.weight.data) | static_cast<std::uint64_t>(lengths) * sizeof(Element);
}

template <class Launcher>
void gated_norm(model::Device& device, const model::GatedNormArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        with_pack<kPack<Element>>(gated_norm_bytes<Element>(x) | address(x.y.data), [&]<int N>() {
            Launcher::of(device).teams(x.rows * (x.width / x.group), lanes_for(x.group / N),
                                       GatedNormGroup<Element, N>{gated_norm_inputs<Element>(x, x.inverse_deviation.data),
                                                                  values<Element>(x.y), static_cast<Compute<Element>>(x.epsilon)});
        });
    });
}

template <class Launcher>
void gated_norm_backward(model::Device& device, const model::GatedNormBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const GatedNormSlopes<Element> slopes{gated_norm_inputs<Element>(x, x.inverse_deviation.data), values<Element>(x.dy)};
        const std::uint64_t bytes =
            gated_norm_bytes<Element>(x) | address(x.dy.data) | address(x.dx.data) | address(x.d_gate.data) | address(x.column_sums.data);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            launcher.teams(x.rows * (x.width / x.group), lanes_for(x.group / N),
                           GatedNormGradient<Element, N>{slopes, values<Element>(x.dx), values<Element>(x.d_gate)});
            if (x.weight.data != nullptr)
                launcher.each(x.parts * x.weight_width / N,
                              GatedNormColumns<Element, N>{slopes, values<Sum>(x.column_sums), x.rows, (x.rows + x.parts - 1) / x.parts});
        });
    });
    if (x.weight.data != nullptr)
        add_column_sums(launcher, x.x.dtype, x.column_sums, 0, x.weight_width, x.parts, x.weight_width, x.weight_gradient);
}

}  // namespace mgplan::runtime::cuda
