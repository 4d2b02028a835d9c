#include <algorithm>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// The blocks of one sequence's channel at place 0, `step` values from place to place.
template <class Element>
struct Channel {
    using Sum = Compute<Element>;
    const Element *b, *c, *x, *weight;
    std::int64_t step, taps;

    template <class Arguments>
    Channel(const Arguments& a, std::int64_t sequence, std::int64_t channel)
        : b(values<Element>(a.projected) + sequence * 3 * a.width + channel),
          c(b + a.width),
          x(c + a.width),
          weight(values<Element>(a.weight) + channel * a.taps),
          step(a.batch * 3 * a.width),
          taps(a.taps) {}

    [[nodiscard]] Sum gated(std::int64_t place) const { return Sum(b[place * step]) * Sum(x[place * step]); }
    [[nodiscard]] Sum convolved(std::int64_t place) const {
        Sum sum = 0;
        for (std::int64_t j = std::max<std::int64_t>(0, taps - 1 - place); j < taps; ++j)
            sum += Sum(weight[j]) * gated(place - taps + 1 + j);
        return sum;
    }
};

}  // namespace

void short_conv(model::Device& /*device*/, const model::ShortConvArguments& a) {
    with_type(a.projected.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        for (std::int64_t place = 0; place < a.places; ++place) {
            for (std::int64_t sequence = 0; sequence < a.batch; ++sequence) {
                Element* const out = values<Element>(a.y) + (place * a.batch + sequence) * a.width;
                for (std::int64_t channel = 0; channel < a.width; ++channel) {
                    const Channel<Element> in(a, sequence, channel);
                    out[channel] = Element(Sum(in.c[place * in.step]) * in.convolved(place));
                }
            }
        }
    });
}

// With u = B · x, v = conv(u), y = C · v: dC = dy · v, dv = dy · C, du(t) = Σ_j weight_j · dv(t + taps - 1 - j), dB = du · x, dx = du · B.
void short_conv_backward(model::Device& /*device*/, const model::ShortConvBackwardArguments& a) {
    with_types(a.projected.dtype, a.weight_gradient.dtype, [&]<class Element, class Gradient>() {
        using Sum = Compute<Element>;
        Sum* const sums = values<Sum>(a.column_sums);  // (width, taps)
        std::fill(sums, sums + a.width * a.taps, Sum{0});
        for (std::int64_t sequence = 0; sequence < a.batch; ++sequence) {
            for (std::int64_t channel = 0; channel < a.width; ++channel) {
                const Channel<Element> in(a, sequence, channel);
                Element* const d_b = values<Element>(a.d_projected) + sequence * 3 * a.width + channel;
                const auto dy = [&](std::int64_t place) {
                    return Sum(values<Element>(a.dy)[(place * a.batch + sequence) * a.width + channel]);
                };
                const auto dv = [&](std::int64_t place) { return dy(place) * Sum(in.c[place * in.step]); };
                for (std::int64_t place = 0; place < a.places; ++place) {
                    for (std::int64_t j = std::max<std::int64_t>(0, a.taps - 1 - place); j < a.taps; ++j)
                        sums[channel * a.taps + j] += dv(place) * in.gated(place - a.taps + 1 + j);
                    Sum du = 0;
                    for (std::int64_t j = a.taps - 1; j >= 0 && place + a.taps - 1 - j < a.places; --j)
                        du += Sum(in.weight[j]) * dv(place + a.taps - 1 - j);
                    const std::int64_t at = place * in.step;
                    d_b[at] = Element(du * Sum(in.x[at]));
                    d_b[at + a.width] = Element(dy(place) * in.convolved(place));
                    d_b[at + 2 * a.width] = Element(du * Sum(in.b[at]));
                }
            }
        }
        Gradient* const gradient = values<Gradient>(a.weight_gradient);
        for (std::int64_t i = 0; i < a.width * a.taps; ++i) gradient[i] = Gradient(Sum(gradient[i]) + sums[i]);
    });
}

}  // namespace mgplan::runtime::cpu
