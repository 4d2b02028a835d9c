#pragma once
// See model/ops/gate.hpp; the formulas are those of runtime/cpu/ops/gate.cpp.

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Sum>
MGPLAN_BOTH Sum gate_of(Sum logit) {
    return 1 / (1 + exponential(-logit));
}

template <class Element>
struct GateRows {
    using Sum = Compute<Element>;
    const Element *x, *logits;
    Element* y;
    std::int64_t width;
    MGPLAN_BOTH void operator()(std::int64_t i) const { y[i] = Element(Sum(x[i]) * gate_of(Sum(logits[row_column(i, width).row]))); }
};

template <class Element>
struct GateRowGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x, *logits;
    Element *dx, *d_logits;
    std::int64_t width;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Sum gate = gate_of(Sum(logits[row]));
        const std::int64_t begin = row * width;
        const Sum d_gate = team.reduce(width, Sum{0}, Add{}, [&](std::int64_t i) { return Sum(dy[begin + i]) * Sum(x[begin + i]); });
        team.each(width, [&](std::int64_t i) { dx[begin + i] = Element(Sum(dy[begin + i]) * gate); });
        team.once([&] { d_logits[row] = Element(d_gate * gate * (1 - gate)); });
    }
};

template <class Launcher>
void gate_rows(model::Device& device, const model::GateRowsArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.rows * x.width,
                                  GateRows<Element>{values<Element>(x.x), values<Element>(x.logits), values<Element>(x.y), x.width});
    });
}

template <class Launcher>
void gate_rows_backward(model::Device& device, const model::GateRowsBackwardArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).teams(x.rows, lanes_for(x.width),
                                   GateRowGradient<Element>{values<Element>(x.dy), values<Element>(x.x), values<Element>(x.logits),
                                                            values<Element>(x.dx), values<Element>(x.d_logits), x.width});
    });
}

}  // namespace mgplan::runtime::cuda
