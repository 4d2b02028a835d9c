#pragma once
// See model/ops/dropout.hpp; the masks are those of every other device, word for word.

#include "model/ops/philox.hpp"
#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// y = residual + x, where nothing drops.
template <class Element>
struct AddResidual {
    using Sum = Compute<Element>;
    const Element *x, *residual;
    Element* y;

    template <int N>
    struct Both {
        Pack<Element, N> x, residual;
    };
    template <int N>
    MGPLAN_BOTH Both<N> load(std::int64_t i) const {
        return {load_pack<N>(x + i), load_pack<N>(residual + i)};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Both<N> both) const {
        for (int k = 0; k < N; ++k) both.x[k] = Element(Sum(both.residual[k]) + Sum(both.x[k]));
        store_pack<N>(y + i, both.x);
    }
};

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
    const std::int32_t* changing;  ///< as in model/ops/dropout.hpp, or nullptr
    std::uint64_t stream;

    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, quad] = row_column(index, quads);
        const std::int64_t begin = 4 * quad;
        const std::int64_t count = width - begin < 4 ? width - begin : 4;
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
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t at = row * width + begin + i;
            const Sum value = random[static_cast<std::size_t>(i)] >= threshold ? Sum(x[at]) * factor : Sum{0};
            y[at] = Element(residual != nullptr ? Sum(residual[at]) + value : value);
        }
    }
};

template <class Launcher>
void dropout(model::Device& device, const model::DropoutArguments& x) {
    const auto& place = *x.place;
    auto&& launcher = Launcher::of(device);
    const auto key = model::dropout_key(place.seed, place.stream);
    const std::int64_t quads = (x.width + 3) / 4;
    with_type(x.x.dtype, [&]<class Element>() {
        if (place.probability == 0) {
            MGPLAN_ASSERT(x.residual.data != nullptr, "what drops nothing adds a residual");
            each_pack<kPack<Element>>(launcher, x.rows * x.width, address(x.x.data) | address(x.residual.data) | address(x.y.data),
                                      AddResidual<Element>{values<Element>(x.x), values<Element>(x.residual), values<Element>(x.y)});
            return;
        }
        launcher.each(
            x.rows * quads,
            Dropout<Element>{values<Element>(x.x), values<Element>(x.residual), values<Element>(x.y), x.width, quads, place.positions,
                             place.first_row, place.first_sequence, key[0], key[1], model::dropout_threshold(place.probability),
                             static_cast<Compute<Element>>(1 / (1 - place.probability)), values<std::int32_t>(x.changing), place.stream});
    });
}

}  // namespace mgplan::runtime::cuda
