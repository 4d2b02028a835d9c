#pragma once
// See model/ops/rotary.hpp.

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// One angle of one place for all heads and sequences. Angles are made in fp64 once for each, not once for each value.
template <class Element>
struct Rotate {
    using Sum = Compute<Element>;
    const Element* x;
    Element* y;
    model::Positions positions;
    std::int64_t vectors;  ///< of one place: sequences · heads
    std::int64_t head_dim, rotated, lanes;
    model::RotaryAngles angles;
    bool inverse;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [place, lane] = row_column(index, lanes);
        const std::int64_t half = rotated / 2;
        const Element* const from = x + place * vectors * head_dim;
        Element* const to = y + place * vectors * head_dim;
        Sum c = 1, s = 0;
        if (lane < half) {
            const double f = pow(angles.base, -2.0 * static_cast<double>(lane) / static_cast<double>(rotated));
            const double ramp = angles.offset + angles.by_index * static_cast<double>(lane) + angles.by_frequency * f;
            const double m = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
            const double angle = static_cast<double>(positions.at(place)) * (f * (m + (1 - m) / angles.factor));
            c = static_cast<Sum>(cos(angle) * angles.magnitude);
            s = static_cast<Sum>((inverse ? -sin(angle) : sin(angle)) * angles.magnitude);
        }
        for (std::int64_t v = 0; v < vectors; ++v) {
            if (lane < half) {
                const std::int64_t first = v * head_dim + lane, second = first + half;
                const Sum a = from[first], b = from[second];
                to[first] = Element(a * c - b * s);
                to[second] = Element(b * c + a * s);
            }
            for (std::int64_t i = rotated + lane; i < head_dim; i += lanes) to[v * head_dim + i] = from[v * head_dim + i];
        }
    }
};

template <class Launcher>
void rotary(model::Device& device, const model::RotaryArguments& x) {
    const std::int64_t lanes = x.rotated > 0 ? x.rotated / 2 : x.head_dim;
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.positions.places() * lanes,
                                  Rotate<Element>{values<Element>(x.x), values<Element>(x.y), x.positions, x.positions.batch * x.heads,
                                                  x.head_dim, x.rotated, lanes, x.angles, x.inverse});
    });
}

}  // namespace mgplan::runtime::cuda
