#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {

void norm(model::Device& /*device*/, const model::NormArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            const bool centred = x.kind == Normalization::layer_norm;
            const Element* const weight = values<Element>(x.weight);
            const Element* const bias = values<Element>(x.bias);
            const Sum count = static_cast<Sum>(x.width);
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const Element* const in = values<Element>(x.x) + row * x.width;
                Element* const out = values<Element>(x.y) + row * x.width;
                const Sum mean = centred ? sum_over<Sum>(x.width, [&](std::int64_t i) { return Sum(in[i]); }) / count : Sum{0};
                const Sum variance = sum_over<Sum>(x.width,
                                                   [&](std::int64_t i) {
                                                       const Sum off = Sum(in[i]) - mean;
                                                       return off * off;
                                                   }) /
                                     count;
                const Sum inverse = 1 / std::sqrt(variance + static_cast<Sum>(x.epsilon));
                for (std::int64_t i = 0; i < x.width; ++i) {
                    const Sum scaled = (Sum(in[i]) - mean) * inverse * (weight != nullptr ? Sum(weight[i]) : Sum{1});
                    out[i] = Element(bias != nullptr ? scaled + Sum(bias[i]) : scaled);
                }
                if (centred) values<Sum>(x.mean)[row] = mean;
                values<Sum>(x.inverse_deviation)[row] = inverse;
            }
        });
    });
}

// With n = (x - mean) · inverse and g = dy · weight:
// dx = inverse · (g - mean(g) - n · mean(g · n)), RMSNorm without mean(g); d_weight = Σ dy · n; d_bias = Σ dy.
void norm_backward(model::Device& /*device*/, const model::NormBackwardArguments& x) {
    vectorised([&] {
        const bool trained = x.weight_gradient.data != nullptr;
        with_types(x.x.dtype, trained ? x.weight_gradient.dtype : x.x.dtype, [&]<class Element, class Gradient>() {
            using Sum = Compute<Element>;
            const bool centred = x.kind == Normalization::layer_norm;
            const Element* const weight = values<Element>(x.weight);
            const Element* const added = values<Element>(x.added);
            Sum* const weight_sums = values<Sum>(x.column_sums);
            Sum* const bias_sums = trained ? weight_sums + x.width : nullptr;
            if (trained) std::fill(weight_sums, weight_sums + 2 * x.width, Sum{0});
            const Sum count = static_cast<Sum>(x.width);
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const Element* const in = values<Element>(x.x) + row * x.width;
                const Element* const dy = values<Element>(x.dy) + row * x.width;
                Element* const dx = values<Element>(x.dx) + row * x.width;
                const Sum mean = centred ? values<Sum>(x.mean)[row] : Sum{0};
                const Sum inverse = values<Sum>(x.inverse_deviation)[row];
                const auto normal = [&](std::int64_t i) { return (Sum(in[i]) - mean) * inverse; };
                const auto inner = [&](std::int64_t i) { return weight != nullptr ? Sum(dy[i]) * Sum(weight[i]) : Sum(dy[i]); };
                const Sum mean_gradient = centred ? sum_over<Sum>(x.width, inner) / count : Sum{0};
                const Sum along = sum_over<Sum>(x.width, [&](std::int64_t i) { return inner(i) * normal(i); }) / count;
                for (std::int64_t i = 0; i < x.width; ++i) dx[i] = Element(inverse * (inner(i) - mean_gradient - normal(i) * along));
                if (added != nullptr) {
                    const Element* const more = added + row * x.width;
                    for (std::int64_t i = 0; i < x.width; ++i) dx[i] = Element(Sum(dx[i]) + Sum(more[i]));
                }
                if (!trained) continue;
                for (std::int64_t i = 0; i < x.width; ++i) {
                    weight_sums[i] += Sum(dy[i]) * normal(i);
                    bias_sums[i] += Sum(dy[i]);
                }
            }
            if (!trained) return;
            Gradient* const weight_gradient = values<Gradient>(x.weight_gradient);
            for (std::int64_t i = 0; i < x.width; ++i) weight_gradient[i] = Gradient(Sum(weight_gradient[i]) + weight_sums[i]);
        });
        if (x.bias_gradient.data == nullptr) return;
        with_types(x.x.dtype, x.bias_gradient.dtype, [&]<class Element, class Gradient>() {
            using Sum = Compute<Element>;
            const Sum* const bias_sums = values<Sum>(x.column_sums) + x.width;
            Gradient* const bias_gradient = values<Gradient>(x.bias_gradient);
            for (std::int64_t i = 0; i < x.width; ++i) bias_gradient[i] = Gradient(Sum(bias_gradient[i]) + bias_sums[i]);
        });
    });
}

}  // namespace mgplan::runtime::cpu
