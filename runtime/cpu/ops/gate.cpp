#include "runtime/cpu/ops/exponential.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"

namespace mgplan::runtime::cpu {

void gate_rows(model::Device& /*device*/, const model::GateRowsArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const Sum gate = 1 / (1 + exponential(-Sum(values<Element>(x.logits)[row])));
            const Element* const from = values<Element>(x.x) + row * x.width;
            Element* const to = values<Element>(x.y) + row * x.width;
            for (std::int64_t i = 0; i < x.width; ++i) to[i] = Element(Sum(from[i]) * gate);
        }
    });
}

void gate_rows_backward(model::Device& /*device*/, const model::GateRowsBackwardArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const Sum gate = 1 / (1 + exponential(-Sum(values<Element>(x.logits)[row])));
            const Element* const from = values<Element>(x.x) + row * x.width;
            const Element* const dy = values<Element>(x.dy) + row * x.width;
            Element* const dx = values<Element>(x.dx) + row * x.width;
            for (std::int64_t i = 0; i < x.width; ++i) dx[i] = Element(Sum(dy[i]) * gate);
            const Sum d_gate = sum_over<Sum>(x.width, [&](std::int64_t i) { return Sum(dy[i]) * Sum(from[i]); });
            values<Element>(x.d_logits)[row] = Element(d_gate * gate * (1 - gate));
        }
    });
}

}  // namespace mgplan::runtime::cpu
