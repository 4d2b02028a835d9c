#pragma once
// See model/ops/dropout.hpp; the masks are those of every other device, word for word.

#include "model/ops/philox.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Four columns of a row: one call of the generator.
template <class Element>
struct Dropout {
    using Sum = Compute<Element>;
    const Element *x, *residual;
    Element* y;
    std::int64_t width, quads;
    model::Positions positions;
    std::int64_t first_row, first_sequence;
    std::uint32_t key_low, key_high, threshold;
    Sum factor;
    bool drops;
    const std::int32_t* changing;  ///< as in model/ops/dropout.hpp, or nullptr
    std::uint64_t stream;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, quad] = row_column(index, quads);
        const std::int64_t begin = 4 * quad;
        const std::int64_t count = width - begin < 4 ? width - begin : 4;
        std::uint32_t words[4] = {0, 0, 0, 0};
        if (drops) {
            const std::int64_t global = first_row + row;
            std::int64_t first = first_sequence;
            std::array<std::uint32_t, 2> key{key_low, key_high};
            if (changing != nullptr) {
                key = model::dropout_key(model::joined_words(changing[0], changing[1]), stream);
                first = static_cast<std::int64_t>(model::joined_words(changing[2], changing[3]));
            }
            const auto random =
                model::dropout_words(key, static_cast<std::uint64_t>(first + global % positions.batch),
                                     static_cast<std::uint64_t>(positions.at(global / positions.batch)), static_cast<std::uint64_t>(quad));
            for (std::size_t i = 0; i < 4; ++i) words[i] = random[i];
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t at = row * width + begin + i;
            Sum value = Sum(x[at]);
            if (drops) value = words[i] >= threshold ? value * factor : Sum{0};
            y[at] = Element(residual != nullptr ? Sum(residual[at]) + value : value);
        }
    }
};

template <class Launcher>
void dropout(model::Device& device, const model::DropoutArguments& x) {
    const auto& place = *x.place;
    const auto key = model::dropout_key(place.seed, place.stream);
    const std::int64_t quads = (x.width + 3) / 4;
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.rows * quads, Dropout<Element>{values<Element>(x.x), values<Element>(x.residual), values<Element>(x.y),
                                                                   x.width, quads, place.positions, place.first_row, place.first_sequence,
                                                                   key[0], key[1], model::dropout_threshold(place.probability),
                                                                   static_cast<Compute<Element>>(1 / (1 - place.probability)),
                                                                   place.probability > 0, values<std::int32_t>(x.changing), place.stream});
    });
}

}  // namespace mgplan::runtime::cuda
