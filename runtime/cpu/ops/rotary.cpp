#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {

// Value i and its partner i + rotated/2 turn by position · frequency i. Angles are made in fp64.
void rotary(model::Device& /*device*/, const model::RotaryArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            const Element* const in = values<Element>(x.x);
            Element* const out = values<Element>(x.y);
            const std::int64_t half = x.rotated / 2, vectors = x.positions.batch * x.heads;  // vectors of one place
            std::vector<double> frequencies(static_cast<std::size_t>(half));
            for (std::int64_t i = 0; i < half; ++i) {
                const auto& a = x.angles;
                const double f = std::pow(a.base, -2.0 * static_cast<double>(i) / static_cast<double>(x.rotated));
                const double m = std::clamp(a.offset + a.by_index * static_cast<double>(i) + a.by_frequency * f, 0.0, 1.0);
                frequencies[static_cast<std::size_t>(i)] = f * (m + (1 - m) / a.factor);
            }
            std::vector<Sum> cosines(frequencies.size()), sines(frequencies.size());
            for (std::int64_t place = 0; place < x.positions.places(); ++place) {
                for (std::size_t i = 0; i < frequencies.size(); ++i) {
                    const double angle = static_cast<double>(x.positions.at(place)) * frequencies[i];
                    cosines[i] = static_cast<Sum>(std::cos(angle) * x.angles.magnitude);
                    sines[i] = static_cast<Sum>((x.inverse ? -std::sin(angle) : std::sin(angle)) * x.angles.magnitude);
                }
                for (std::int64_t v = place * vectors; v < (place + 1) * vectors; ++v) {
                    const std::int64_t first = (x.members > 0 ? v + v / x.members : v) * x.head_dim;
                    const Element* const from = in + first;
                    Element* const to = out + first;
                    for (std::int64_t i = 0; i < half; ++i) {
                        const Sum c = cosines[static_cast<std::size_t>(i)], s = sines[static_cast<std::size_t>(i)];
                        const Sum a = from[i], b = from[i + half];
                        to[i] = Element(a * c - b * s);
                        to[i + half] = Element(b * c + a * s);
                    }
                    if (from != to) std::copy(from + x.rotated, from + x.head_dim, to + x.rotated);
                }
            }
        });
    });
}

}  // namespace mgplan::runtime::cpu
