#include <algorithm>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {

void embedding(model::Device& /*device*/, const model::EmbeddingArguments& x) {
    with_type(x.table.dtype, [&]<class Element>() {
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const std::int64_t place = values<std::int32_t>(x.ids)[row] - x.first;
            Element* const out = values<Element>(x.y) + row * x.width;
            if (place >= 0 && place < x.table_rows) {
                std::copy_n(values<Element>(x.table) + place * x.width, x.width, out);
            } else {
                std::fill_n(out, x.width, Element(0.0F));
            }
        }
    });
}

void embedding_backward(model::Device& /*device*/, const model::EmbeddingBackwardArguments& x) {
    vectorised([&] {
        with_types(x.dy.dtype, x.gradient.dtype, [&]<class Element, class Gradient>() {
            using Sum = Compute<Element>;
            for (std::int64_t row = 0; row < x.rows; ++row) {
                const std::int64_t place = values<std::int32_t>(x.ids)[row] - x.first;
                if (place < 0 || place >= x.table_rows) continue;
                const Element* const dy = values<Element>(x.dy) + row * x.width;
                Gradient* const into = values<Gradient>(x.gradient) + place * x.width;
                for (std::int64_t i = 0; i < x.width; ++i) into[i] = Gradient(Sum(into[i]) + Sum(dy[i]));
            }
        });
    });
}

}  // namespace mgplan::runtime::cpu
