#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"

namespace mgplan::runtime::cpu {

// Value i and its partner i + rotated/2 turn by position · base^(-2i / rotated). Angles are made in fp64.
void rotary(model::Device& /*device*/, const model::RotaryArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        const Element* const in = values<Element>(x.x);
        Element* const out = values<Element>(x.y);
        const std::int64_t half = x.rotated / 2, vectors = x.positions.batch * x.heads;  // vectors of one place
        std::vector<double> frequencies(static_cast<std::size_t>(half));
        for (std::int64_t i = 0; i < half; ++i) {
            frequencies[static_cast<std::size_t>(i)] = std::pow(x.base, -2.0 * static_cast<double>(i) / static_cast<double>(x.rotated));
        }
        for (std::int64_t place = 0; place < x.positions.places(); ++place) {
            const Element* const from = in + place * vectors * x.head_dim;
            Element* const to = out + place * vectors * x.head_dim;
            for (std::int64_t i = 0; i < half; ++i) {
                const double angle = static_cast<double>(x.positions.at(place)) * frequencies[static_cast<std::size_t>(i)];
                const Sum c = static_cast<Sum>(std::cos(angle));
                const Sum s = static_cast<Sum>(x.inverse ? -std::sin(angle) : std::sin(angle));
                for (std::int64_t v = 0; v < vectors; ++v) {
                    const std::int64_t first = v * x.head_dim + i, second = first + half;
                    const Sum a = from[first], b = from[second];
                    to[first] = Element(a * c - b * s);
                    to[second] = Element(b * c + a * s);
                }
            }
            for (std::int64_t v = 0; v < vectors; ++v) {
                std::copy(from + v * x.head_dim + x.rotated, from + (v + 1) * x.head_dim, to + v * x.head_dim + x.rotated);
            }
        }
    });
}

}  // namespace mgplan::runtime::cpu
