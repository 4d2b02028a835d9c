#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"

namespace mgplan::runtime::cpu {

void gated_norm(model::Device& /*device*/, const model::GatedNormArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Element* const weight = values<Element>(x.weight);
        const std::int64_t groups = x.width / x.group;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            for (std::int64_t group = 0; group < groups; ++group) {
                const std::int64_t begin = row * x.width + group * x.group;
                const Element* const in = values<Element>(x.x) + begin;
                const Element* const z = values<Element>(x.gate) + row * x.gate_pitch + x.gate_begin + group * x.group;
                const auto gate = [&](std::int64_t i) { return (x.sigmoid_gate ? Sum{1} : Sum(z[i])) / (1 + exponential(-Sum(z[i]))); };
                const auto inner = [&](std::int64_t i) { return x.gate_first ? Sum(in[i]) * gate(i) : Sum(in[i]); };
                Sum inverse = 1;
                if (weight != nullptr) {
                    const Sum squares = sum_over<Sum>(x.group, [&](std::int64_t i) { return inner(i) * inner(i); });
                    inverse = 1 / std::sqrt(squares / static_cast<Sum>(x.group) + static_cast<Sum>(x.epsilon));
                    values<Sum>(x.inverse_deviation)[row * groups + group] = inverse;
                }
                for (std::int64_t i = 0; i < x.group; ++i) {
                    const Sum scale = weight != nullptr ? Sum(weight[(group * x.group + i) % x.weight_width]) : Sum{1};
                    values<Element>(x.y)[begin + i] = Element(inner(i) * inverse * scale * (x.gate_first ? Sum{1} : gate(i)));
                }
            }
        }
    });
}

// With u = x · silu(z) where the gate comes first, else x, n = u · inverse, and g the gradient of n:
// du = inverse · (g - n · mean(g · n)), without a norm du = g.
void gated_norm_backward(model::Device& /*device*/, const model::GatedNormBackwardArguments& x) {
    const auto pass = [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        const Element* const weight = values<Element>(x.weight);
        Sum* const sums = values<Sum>(x.column_sums);
        if (sums != nullptr) std::fill(sums, sums + x.weight_width, Sum{0});
        const std::int64_t groups = x.width / x.group;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            for (std::int64_t group = 0; group < groups; ++group) {
                const std::int64_t begin = row * x.width + group * x.group, gate_at = row * x.gate_pitch + x.gate_begin + group * x.group;
                const Element* const in = values<Element>(x.x) + begin;
                const Element* const dy = values<Element>(x.dy) + begin;
                const Element* const z = values<Element>(x.gate) + gate_at;
                const Sum inverse = weight != nullptr ? values<Sum>(x.inverse_deviation)[row * groups + group] : Sum{1};
                const auto sigmoid = [&](std::int64_t i) { return 1 / (1 + exponential(-Sum(z[i]))); };
                const auto gate = [&](std::int64_t i) { return x.sigmoid_gate ? sigmoid(i) : Sum(z[i]) * sigmoid(i); };
                const auto scale = [&](std::int64_t i) {
                    return weight != nullptr ? Sum(weight[(group * x.group + i) % x.weight_width]) : Sum{1};
                };
                const auto normal = [&](std::int64_t i) { return (x.gate_first ? Sum(in[i]) * gate(i) : Sum(in[i])) * inverse; };
                // Gradient of normal · weight, then of normal.
                const auto outer = [&](std::int64_t i) { return x.gate_first ? Sum(dy[i]) : Sum(dy[i]) * gate(i); };
                const auto slope = [&](std::int64_t i) { return outer(i) * scale(i); };
                const Sum along = weight == nullptr ? Sum{0} : sum_over<Sum>(x.group, [&](std::int64_t i) {
                                                                   return slope(i) * normal(i);
                                                               }) / static_cast<Sum>(x.group);
                for (std::int64_t i = 0; i < x.group; ++i) {
                    const Sum s = sigmoid(i), gate_slope = x.sigmoid_gate ? s * (1 - s) : s * (1 + Sum(z[i]) * (1 - s));
                    const Sum du = inverse * (slope(i) - normal(i) * along);
                    const Sum d_gate = x.gate_first ? du * Sum(in[i]) : Sum(dy[i]) * normal(i) * scale(i);
                    values<Element>(x.dx)[begin + i] = Element(x.gate_first ? du * gate(i) : du);
                    values<Element>(x.d_gate)[gate_at + i] = Element(d_gate * gate_slope);
                    if (sums != nullptr) sums[(group * x.group + i) % x.weight_width] += outer(i) * normal(i);
                }
            }
        }
        Gradient* const gradient = values<Gradient>(x.weight_gradient);
        for (std::int64_t i = 0; sums != nullptr && i < x.weight_width; ++i) gradient[i] = Gradient(Sum(gradient[i]) + sums[i]);
    };
    with_types(x.x.dtype, x.weight.data != nullptr ? x.weight_gradient.dtype : x.x.dtype, pass);
}

}  // namespace mgplan::runtime::cpu
