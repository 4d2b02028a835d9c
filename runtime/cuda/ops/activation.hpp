#pragma once
// See model/ops/activation.hpp; the formulas are those of runtime/cpu/ops/activation.cpp.

#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

template <class Sum>
struct ValueAndSlope {
    Sum value, slope;
};

template <class Sum>
MGPLAN_BOTH ValueAndSlope<Sum> evaluate(Activation kind, Sum x) {
    switch (kind) {
        case Activation::gelu: {  // the tanh form as x · sigmoid
            const Sum twice = static_cast<Sum>(1.5957691216057308), cubic = static_cast<Sum>(0.044715);
            const Sum s = 1 / (1 + exponential(-twice * (x + cubic * x * x * x)));
            return {x * s, s + x * s * (1 - s) * twice * (1 + 3 * cubic * x * x)};
        }
        case Activation::silu: {
            const Sum s = 1 / (1 + exponential(-x));
            return {x * s, s * (1 + x * (1 - s))};
        }
        case Activation::relu:
            return {x > 0 ? x : Sum{0}, x > 0 ? Sum{1} : Sum{0}};
        case Activation::gelu_exact: {
            const Sum below = Sum{0.5} * (1 + error_function(x * static_cast<Sum>(0.7071067811865476)));
            return {x * below, below + x * static_cast<Sum>(0.3989422804014327) * exponential(-x * x / 2)};
        }
        case Activation::clamped_swish: {
            const Sum steep = static_cast<Sum>(1.702), most = 7;
            const Sum capped = x > most ? most : x, s = 1 / (1 + exponential(-steep * capped));
            return {capped * s, x > most ? Sum{0} : s * (1 + steep * x * (1 - s))};
        }
        case Activation::squared_relu:
        case Activation::xielu:  // never here: it has kernels of its own
            break;
    }
    const Sum positive = x > 0 ? x : Sum{0};
    return {positive * positive, 2 * positive};
}

/// Returns the factor of the activated gate, made of the value x, and its slope.
template <class Sum>
MGPLAN_BOTH ValueAndSlope<Sum> gated_value(Activation kind, Sum x) {
    if (kind != Activation::clamped_swish) return {x, Sum{1}};
    const Sum most = 7;
    if (x > most) return {1 + most, Sum{0}};
    return x < -most ? ValueAndSlope<Sum>{1 - most, Sum{0}} : ValueAndSlope<Sum>{1 + x, Sum{1}};
}

template <class Element>
struct ActivationForward {
    using Sum = Compute<Element>;
    const Element* x;
    const Sum* row_weights;
    Element* y;
    std::int64_t width;
    Activation kind;
    bool gated;

    template <int N>
    struct Loaded {
        Pack<Element, N> in, gated;
        Sum weight;
    };
    /// Packs do not go beyond a row.
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t index) const {
        const auto [row, column] = row_column(index, width);
        const Element* const in = x + row * width * (gated ? 2 : 1) + column;
        return {load_pack<N>(in), load_pack<N>(gated ? in + width : in), row_weights != nullptr ? row_weights[row] : Sum{1}};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t index, const Loaded<N>& loaded) const {
        Pack<Element, N> result;
        for (int k = 0; k < N; ++k) {
            Sum value = evaluate(kind, Sum(loaded.in[k])).value;
            if (gated) value *= gated_value(kind, Sum(loaded.gated[k])).value;
            result[k] = Element(row_weights != nullptr ? value * loaded.weight : value);
        }
        store_pack<N>(y + index, result);
    }
};

template <class Element>
struct ActivationInputGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x;
    const Sum* row_weights;
    Element* dx;
    std::int64_t width;
    Activation kind;
    bool gated;

    template <int N>
    struct Loaded {
        Pack<Element, N> slope, in, gated;
        Sum weight;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t index) const {
        const auto [row, column] = row_column(index, width);
        const Element* const in = x + row * width * (gated ? 2 : 1) + column;
        return {load_pack<N>(dy + index), load_pack<N>(in), load_pack<N>(gated ? in + width : in),
                row_weights != nullptr ? row_weights[row] : Sum{1}};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t index, const Loaded<N>& loaded) const {
        const auto [row, column] = row_column(index, width);
        Element* const out = dx + row * width * (gated ? 2 : 1) + column;
        Pack<Element, N> of_input, of_gated{};
        for (int k = 0; k < N; ++k) {
            const auto f = evaluate(kind, Sum(loaded.in[k]));
            const Sum gradient = Sum(loaded.slope[k]) * loaded.weight;
            if (gated) {
                const auto v = gated_value(kind, Sum(loaded.gated[k]));
                of_input[k] = Element(gradient * v.value * f.slope);
                of_gated[k] = Element(gradient * f.value * v.slope);
            } else {
                of_input[k] = Element(gradient * f.slope);
            }
        }
        store_pack<N>(out, of_input);
        if (gated) store_pack<N>(out + width, of_gated);
    }
};

template <class Element, int N>
struct RowWeightGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x;
    Sum* d_row_weights;
    std::int64_t width;
    Activation kind;
    bool gated;

    template <int Size>
    struct Loaded {
        Pack<Element, Size> slope, in, gated;
    };
    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Element* const in = x + row * width * (gated ? 2 : 1);
        const Sum sum = team.template reduce_packs<N>(
            width, Sum{0}, Add{},
            [&](auto size, std::int64_t i) {
                constexpr int kSize = decltype(size)::value;
                return Loaded<kSize>{load_pack<kSize>(dy + row * width + i), load_pack<kSize>(in + i),
                                     load_pack<kSize>(gated ? in + width + i : in + i)};
            },
            [&](const auto& loaded, int k) {
                const Sum unweighted =
                    evaluate(kind, Sum(loaded.in[k])).value * (gated ? gated_value(kind, Sum(loaded.gated[k])).value : Sum{1});
                return Sum(loaded.slope[k]) * unweighted;
            });
        team.once([&] { d_row_weights[row] = sum; });
    }
};

template <class Launcher>
void activation(model::Device& device, const model::ActivationArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        each_pack<kPack<Element>>(Launcher::of(device), x.rows * x.width,
                                  address(x.x.data) | address(x.y.data) | static_cast<std::uint64_t>(x.width) * sizeof(Element),
                                  ActivationForward<Element>{values<Element>(x.x), values<Compute<Element>>(x.row_weights),
                                                             values<Element>(x.y), x.width, x.kind, x.gated});
    });
}

template <class Launcher>
void activation_backward(model::Device& device, const model::ActivationBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Element* const dy = values<Element>(x.dy);
        const Element* const in = values<Element>(x.x);
        const std::uint64_t bytes = address(dy) | address(in) | address(x.dx.data) | static_cast<std::uint64_t>(x.width) * sizeof(Element);
        if (x.d_row_weights.data != nullptr) {
            with_pack<kPack<Element>>(bytes, [&]<int N>() {
                launcher.teams(x.rows, lanes_for(x.width / N),
                               RowWeightGradient<Element, N>{dy, in, values<Sum>(x.d_row_weights), x.width, x.kind, x.gated});
            });
        }
        each_pack<kPack<Element>>(
            launcher, x.rows * x.width, bytes,
            ActivationInputGradient<Element>{dy, in, values<Sum>(x.row_weights), values<Element>(x.dx), x.width, x.kind, x.gated});
    });
}

}  // namespace mgplan::runtime::cuda
