#include <algorithm>

#include "model/ops/philox.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {

void dropout(model::Device& /*device*/, const model::DropoutArguments& x) {
    vectorised([&] {
        with_type(x.x.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            const auto& place = *x.place;
            const auto* const changing = static_cast<const std::int32_t*>(x.changing.data);
            const std::uint64_t seed = changing != nullptr ? model::joined_words(changing[0], changing[1]) : place.seed;
            const auto first_sequence =
                changing != nullptr ? static_cast<std::int64_t>(model::joined_words(changing[2], changing[3])) : place.first_sequence;
            const auto key = model::dropout_key(seed, place.stream);
            const std::uint32_t threshold = model::dropout_threshold(place.probability);
            const Sum factor = static_cast<Sum>(1 / (1 - place.probability));
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const Element* const in = values<Element>(x.x) + row * x.width;
                const Element* const residual = x.residual.data != nullptr ? values<Element>(x.residual) + row * x.width : nullptr;
                Element* const out = values<Element>(x.y) + row * x.width;
                const auto added = [&](std::int64_t i) { return residual != nullptr ? Sum(residual[i]) : Sum{0}; };
                if (place.probability == 0) {
                    for (std::int64_t i = 0; i < x.width; ++i) out[i] = Element(added(i) + Sum(in[i]));
                    continue;
                }
                const std::int64_t global = place.first_row + row;
                const auto sequence = static_cast<std::uint64_t>(first_sequence + global % place.positions.batch);
                const auto position = static_cast<std::uint64_t>(place.positions.at(global / place.positions.batch));
                for (std::int64_t i = 0; i < x.width; i += 4) {
                    const auto words = model::dropout_words(key, sequence, position, static_cast<std::uint64_t>(i / 4));
                    for (std::int64_t j = i; j < std::min(i + 4, x.width); ++j) {
                        const bool kept = words[static_cast<std::size_t>(j - i)] >= threshold;
                        out[j] = Element(added(j) + (kept ? Sum(in[j]) * factor : Sum{0}));
                    }
                }
            }
        });
    });
}

}  // namespace mgplan::runtime::cpu
