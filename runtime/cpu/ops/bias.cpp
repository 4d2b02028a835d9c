#include <algorithm>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {

void add_bias(model::Device& /*device*/, const model::AddBiasArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            const Element* const bias = values<Element>(x.bias);
            const Sum* const weights = values<Sum>(x.row_weights);
            for (std::int64_t row = 0; row < x.rows; ++row) {
                Element* const out = values<Element>(x.x) + row * x.width;
                if (weights != nullptr) {
                    const Sum weight = weights[row];
                    for (std::int64_t i = 0; i < x.width; ++i) out[i] = Element(Sum(out[i]) + weight * Sum(bias[i]));
                    continue;
                }
                for (std::int64_t i = 0; i < x.width; ++i) out[i] = Element(Sum(out[i]) + Sum(bias[i]));
            }
        });
    });
}

void bias_gradient(model::Device& /*device*/, const model::BiasGradientArguments& x) {
    vectorised([&] {
        with_types(x.dy.dtype, x.gradient.dtype, [&]<class Element, class Gradient>() {
            using Sum = Compute<Element>;
            Sum* const sums = values<Sum>(x.column_sums);
            std::fill(sums, sums + x.width, Sum{0});
            const Sum* const weights = values<Sum>(x.row_weights);
            const Element* const bias = values<Element>(x.bias);
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const Element* const dy = values<Element>(x.dy) + row * x.width;
                if (weights != nullptr) {
                    const Sum weight = weights[row];
                    for (std::int64_t i = 0; i < x.width; ++i) sums[i] += weight * Sum(dy[i]);
                    values<Sum>(x.d_row_weights)[row] += sum_over<Sum>(x.width, [&](std::int64_t i) { return Sum(dy[i]) * Sum(bias[i]); });
                    continue;
                }
                for (std::int64_t i = 0; i < x.width; ++i) sums[i] += Sum(dy[i]);
            }
            Gradient* const gradient = values<Gradient>(x.gradient);
            for (std::int64_t i = 0; i < x.width; ++i) gradient[i] = Gradient(Sum(gradient[i]) + sums[i]);
        });
    });
}

}  // namespace mgplan::runtime::cpu
