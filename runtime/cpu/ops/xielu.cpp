#include <cmath>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/softplus.hpp"

namespace mgplan::runtime::cpu {

void xielu(model::Device& /*device*/, const model::XieluArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Sum p = softplus(Sum(*values<Element>(x.positive))), n = Sum{1} / 2 + softplus(Sum(*values<Element>(x.negative)));
        const Element* const in = values<Element>(x.x);
        Element* const out = values<Element>(x.y);
        for (std::int64_t i = 0; i < x.elements; ++i) {
            const Sum value = Sum(in[i]);
            out[i] = Element((value > 0 ? p * value * value : n * (std::expm1(value) - value)) + value / 2);
        }
    });
}

void xielu_backward(model::Device& /*device*/, const model::XieluBackwardArguments& x) {
    with_types(x.x.dtype, x.d_positive.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        const Sum raw_p = Sum(*values<Element>(x.positive)), raw_n = Sum(*values<Element>(x.negative));
        const Sum p = softplus(raw_p), n = Sum{1} / 2 + softplus(raw_n);
        const Element* const in = values<Element>(x.x);
        const Element* const dy = values<Element>(x.dy);
        Element* const dx = values<Element>(x.dx);
        Sum* const sums = values<Sum>(x.sums);
        sums[0] = sums[1] = 0;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            Sum of_p = 0, of_n = 0;
            for (std::int64_t i = row * x.width; i < (row + 1) * x.width; ++i) {
                const Sum value = Sum(in[i]), slope = Sum(dy[i]);
                if (value > 0) {
                    dx[i] = Element(slope * (2 * p * value + Sum{1} / 2));
                    of_p += slope * value * value;
                } else {
                    const Sum less_one = std::expm1(value);
                    dx[i] = Element(slope * (n * less_one + Sum{1} / 2));
                    of_n += slope * (less_one - value);
                }
            }
            sums[0] += of_p;
            sums[1] += of_n;
        }
        Gradient* const d_positive = values<Gradient>(x.d_positive);
        Gradient* const d_negative = values<Gradient>(x.d_negative);
        *d_positive = Gradient(Sum(*d_positive) + sums[0] * softplus_slope(raw_p));
        *d_negative = Gradient(Sum(*d_negative) + sums[1] * softplus_slope(raw_n));
    });
}

}  // namespace mgplan::runtime::cpu
