#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

template <class Sum>
struct ValueAndSlope {
    Sum value, slope;
};

template <class Sum>
Sum sigmoid(Sum x) {
    return 1 / (1 + exponential(-x));
}

/// f(x) and f'(x). GELU's tanh form, x/2 · (1 + tanh(u)) with u = sqrt(2/π)·(x + 0.044715·x³), is x · sigmoid(2u).
template <Activation kind, class Sum>
ValueAndSlope<Sum> evaluate(Sum x) {
    if constexpr (kind == Activation::gelu) {
        constexpr Sum kTwice = static_cast<Sum>(1.5957691216057308);  // 2 sqrt(2/π)
        constexpr Sum kCubic = static_cast<Sum>(0.044715);
        const Sum s = sigmoid(kTwice * (x + kCubic * x * x * x));
        return {x * s, s + x * s * (1 - s) * kTwice * (1 + 3 * kCubic * x * x)};
    } else if constexpr (kind == Activation::gelu_exact) {
        constexpr Sum kRootOfHalf = static_cast<Sum>(0.7071067811865476), kDensity = static_cast<Sum>(0.3989422804014327);  // 1 / sqrt(2π)
        const Sum below = Sum{1} / 2 * (1 + std::erf(x * kRootOfHalf));
        return {x * below, below + x * kDensity * exponential(-x * x / 2)};
    } else if constexpr (kind == Activation::clamped_swish) {
        constexpr Sum kSteep = static_cast<Sum>(1.702), kMost = 7;
        const Sum capped = std::min(x, kMost), s = sigmoid(kSteep * capped);
        return {capped * s, x > kMost ? Sum{0} : s * (1 + kSteep * x * (1 - s))};
    } else if constexpr (kind == Activation::silu) {
        const Sum s = sigmoid(x);
        return {x * s, s * (1 + x * (1 - s))};
    } else if constexpr (kind == Activation::relu) {
        return {x > 0 ? x : Sum{0}, x > 0 ? Sum{1} : Sum{0}};
    } else {
        const Sum positive = x > 0 ? x : Sum{0};
        return {positive * positive, 2 * positive};
    }
}

/// Returns the factor of the activated gate, made of the value x, and its slope.
template <Activation kind, class Sum>
ValueAndSlope<Sum> gated_value(Sum x) {
    if constexpr (kind == Activation::clamped_swish) {
        constexpr Sum kMost = 7;
        return {1 + std::clamp(x, -kMost, kMost), x < -kMost || x > kMost ? Sum{0} : Sum{1}};
    } else {
        return {x, Sum{1}};
    }
}

template <class Work>
void with_kind(Activation kind, Work&& work) {
    switch (kind) {
        case Activation::gelu:
            return work.template operator()<Activation::gelu>();
        case Activation::silu:
            return work.template operator()<Activation::silu>();
        case Activation::relu:
            return work.template operator()<Activation::relu>();
        case Activation::squared_relu:
            return work.template operator()<Activation::squared_relu>();
        case Activation::gelu_exact:
            return work.template operator()<Activation::gelu_exact>();
        case Activation::clamped_swish:
            return work.template operator()<Activation::clamped_swish>();
        case Activation::xielu:
            break;  // has kernels of its own (xielu.cpp)
    }
}

template <class Element, Activation kind>
void forward(const model::ActivationArguments& x) {
    using Sum = Compute<Element>;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        const Element* const in = values<Element>(x.x) + row * x.width * (x.gated ? 2 : 1);
        Element* const out = values<Element>(x.y) + row * x.width;
        const Sum weight = x.row_weights.data != nullptr ? values<Sum>(x.row_weights)[row] : Sum{1};
        if (x.gated) {
            const Element* const value = in + x.width;
            for (std::int64_t i = 0; i < x.width; ++i)
                out[i] = Element(evaluate<kind>(Sum(in[i])).value * gated_value<kind>(Sum(value[i])).value * weight);
        } else {
            for (std::int64_t i = 0; i < x.width; ++i) out[i] = Element(evaluate<kind>(Sum(in[i])).value * weight);
        }
    }
}

template <class Element, Activation kind>
void backward(const model::ActivationBackwardArguments& x) {
    using Sum = Compute<Element>;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        const std::int64_t start = row * x.width * (x.gated ? 2 : 1);
        const Element* const in = values<Element>(x.x) + start;
        const Element* const dy = values<Element>(x.dy) + row * x.width;
        Element* const dx = values<Element>(x.dx) + start;
        const Element* const value = in + x.width;
        Element* const d_value = dx + x.width;
        const Sum weight = x.row_weights.data != nullptr ? values<Sum>(x.row_weights)[row] : Sum{1};
        if (x.d_row_weights.data != nullptr) {
            values<Sum>(x.d_row_weights)[row] = sum_over<Sum>(x.width, [&](std::int64_t i) {
                const Sum unweighted = evaluate<kind>(Sum(in[i])).value * (x.gated ? gated_value<kind>(Sum(value[i])).value : Sum{1});
                return Sum(dy[i]) * unweighted;
            });
        }
        if (x.gated) {
            for (std::int64_t i = 0; i < x.width; ++i) {
                const auto f = evaluate<kind>(Sum(in[i]));
                const auto v = gated_value<kind>(Sum(value[i]));
                const Sum gradient = Sum(dy[i]) * weight;
                dx[i] = Element(gradient * v.value * f.slope);
                d_value[i] = Element(gradient * f.value * v.slope);
            }
        } else {
            for (std::int64_t i = 0; i < x.width; ++i) dx[i] = Element(Sum(dy[i]) * weight * evaluate<kind>(Sum(in[i])).slope);
        }
    }
}

}  // namespace

void activation(model::Device& /*device*/, const model::ActivationArguments& x) {
    vectorised(
        [&] { with_type(x.x.dtype, [&]<class Element>() { with_kind(x.kind, [&]<Activation kind>() { forward<Element, kind>(x); }); }); });
}

void activation_backward(model::Device& /*device*/, const model::ActivationBackwardArguments& x) {
    vectorised(
        [&] { with_type(x.x.dtype, [&]<class Element>() { with_kind(x.kind, [&]<Activation kind>() { backward<Element, kind>(x); }); }); });
}

}  // namespace mgplan::runtime::cpu
