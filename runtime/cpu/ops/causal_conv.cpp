#include <algorithm>

#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// bias_c + Σ_j weight_cj · x_c(place - taps + 1 + j), in front of SiLU. `in`: the sequence's channel at place 0, `step` values from
/// place to place.
template <class Sum, class Element>
Sum convolved(const Element* in, std::int64_t step, std::int64_t place, const Element* weight, std::int64_t taps, Sum bias) {
    Sum sum = bias;
    for (std::int64_t j = std::max<std::int64_t>(0, taps - 1 - place); j < taps; ++j)
        sum += Sum(weight[j]) * Sum(in[(place - taps + 1 + j) * step]);
    return sum;
}

}  // namespace

void causal_conv(model::Device& /*device*/, const model::CausalConvArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Element* const bias = values<Element>(x.bias);
        for (std::int64_t place = 0; place < x.places; ++place) {
            for (std::int64_t sequence = 0; sequence < x.batch; ++sequence) {
                Element* const out = values<Element>(x.y) + (place * x.batch + sequence) * x.channels;
                for (std::int64_t c = 0; c < x.channels; ++c) {
                    const Element* const in = values<Element>(x.x) + sequence * x.x_pitch + x.x_begin + c;
                    const Sum u = convolved(in, x.batch * x.x_pitch, place, values<Element>(x.weight) + c * x.taps, x.taps,
                                            bias != nullptr ? Sum(bias[c]) : Sum{0});
                    out[c] = Element(u / (1 + exponential(-u)));
                }
            }
        }
    });
}

// With s = sigmoid(u): dSiLU/du = s · (1 + u · (1 - s)); dx(t) = Σ_j weight_j · du(t + taps - 1 - j).
void causal_conv_backward(model::Device& /*device*/, const model::CausalConvBackwardArguments& x) {
    with_types(x.x.dtype, x.weight_gradient.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        const Element* const bias = values<Element>(x.bias);
        const std::int64_t step = x.batch * x.x_pitch;
        Sum* const sums = values<Sum>(x.column_sums);  // (taps + 1, channels)
        std::fill(sums, sums + (x.taps + 1) * x.channels, Sum{0});
        for (std::int64_t sequence = 0; sequence < x.batch; ++sequence) {
            for (std::int64_t c = 0; c < x.channels; ++c) {
                const Element* const in = values<Element>(x.x) + sequence * x.x_pitch + x.x_begin + c;
                Element* const dx = values<Element>(x.dx) + sequence * x.x_pitch + x.x_begin + c;
                const Element* const weight = values<Element>(x.weight) + c * x.taps;
                const auto slope = [&](std::int64_t place) {
                    const Sum u = convolved(in, step, place, weight, x.taps, bias != nullptr ? Sum(bias[c]) : Sum{0});
                    const Sum s = 1 / (1 + exponential(-u));
                    return Sum(values<Element>(x.dy)[(place * x.batch + sequence) * x.channels + c]) * s * (1 + u * (1 - s));
                };
                for (std::int64_t place = 0; place < x.places; ++place) {
                    const Sum du = slope(place);
                    sums[x.taps * x.channels + c] += du;
                    for (std::int64_t j = std::max<std::int64_t>(0, x.taps - 1 - place); j < x.taps; ++j)
                        sums[j * x.channels + c] += du * Sum(in[(place - x.taps + 1 + j) * step]);
                    Sum sum = 0;
                    for (std::int64_t j = x.taps - 1; j >= 0 && place + x.taps - 1 - j < x.places; --j)
                        sum += Sum(weight[j]) * slope(place + x.taps - 1 - j);
                    dx[place * step] = Element(sum);
                }
            }
        }
        Gradient* const weight_gradient = values<Gradient>(x.weight_gradient);
        for (std::int64_t c = 0; c < x.channels; ++c) {
            for (std::int64_t j = 0; j < x.taps; ++j) {
                Gradient& gradient = weight_gradient[c * x.taps + j];
                gradient = Gradient(Sum(gradient) + sums[j * x.channels + c]);
            }
        }
    });
    if (x.bias_gradient.data == nullptr) return;
    with_types(x.x.dtype, x.bias_gradient.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        const Sum* const sums = values<Sum>(x.column_sums) + x.taps * x.channels;
        Gradient* const gradient = values<Gradient>(x.bias_gradient);
        for (std::int64_t c = 0; c < x.channels; ++c) gradient[c] = Gradient(Sum(gradient[c]) + sums[c]);
    });
}

}  // namespace mgplan::runtime::cpu
