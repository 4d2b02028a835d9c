#pragma once
// See model/ops/gate.hpp; the formulas are those of runtime/cpu/ops/gate.cpp.

#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

template <class Sum>
MGPLAN_BOTH Sum gate_of(Sum logit) {
    return 1 / (1 + exponential(-logit));
}

/// A body of packs.
template <class Element>
struct GateRows {
    using Sum = Compute<Element>;
    const Element *x, *logits;
    Element* y;
    std::int64_t width;

    template <int N>
    struct Loaded {
        Pack<Element, N> x;
        Sum logit;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t i) const {
        return {load_pack<N>(x + i), Sum(logits[row_column(i, width).row])};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Loaded<N> loaded) const {
        const Sum gate = gate_of(loaded.logit);
        for (int k = 0; k < N; ++k) loaded.x[k] = Element(Sum(loaded.x[k]) * gate);
        store_pack<N>(y + i, loaded.x);
    }
};

template <class Element, int N>
struct GateRowGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x, *logits;
    Element *dx, *d_logits;
    std::int64_t width;

    template <int Size>
    struct Loaded {
        Pack<Element, Size> dy, x;
    };
    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Sum gate = gate_of(Sum(logits[row]));
        const Element* const slope = dy + row * width;
        const Element* const in = x + row * width;
        Element* const out = dx + row * width;
        const Sum d_gate = team.template reduce_packs<N>(
            width, Sum{0}, Add{},
            [&](auto size, std::int64_t i) {
                constexpr int kSize = decltype(size)::value;
                return Loaded<kSize>{load_pack<kSize>(slope + i), load_pack<kSize>(in + i)};
            },
            [](const auto& loaded, int k) { return Sum(loaded.dy[k]) * Sum(loaded.x[k]); });
        team.template each_pack<N>(
            width, [&](auto size, std::int64_t i) { return load_pack<decltype(size)::value>(slope + i); },
            [&](auto size, std::int64_t i, auto values) {
                constexpr int kSize = decltype(size)::value;
                for (int k = 0; k < kSize; ++k) values[k] = Element(Sum(values[k]) * gate);
                store_pack<kSize>(out + i, values);
            });
        team.once([&] { d_logits[row] = Element(d_gate * gate * (1 - gate)); });
    }
};

/// Rows of one value each, as gates of attention's every output have it: bodies of packs.
template <class Element>
struct GateValues {
    using Sum = Compute<Element>;
    const Element *x, *logits;
    Element* y;

    template <int N>
    struct Loaded {
        Pack<Element, N> x, logits;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t i) const {
        return {load_pack<N>(x + i), load_pack<N>(logits + i)};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Loaded<N> loaded) const {
        for (int k = 0; k < N; ++k) loaded.x[k] = Element(Sum(loaded.x[k]) * gate_of(Sum(loaded.logits[k])));
        store_pack<N>(y + i, loaded.x);
    }
};

template <class Element>
struct GateValueGradient {
    using Sum = Compute<Element>;
    const Element *dy, *x, *logits;
    Element *dx, *d_logits;

    template <int N>
    struct Loaded {
        Pack<Element, N> dy, x, logits;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t i) const {
        return {load_pack<N>(dy + i), load_pack<N>(x + i), load_pack<N>(logits + i)};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Loaded<N> loaded) const {
        Pack<Element, N> of_x, of_logits;
        for (int k = 0; k < N; ++k) {
            const Sum gate = gate_of(Sum(loaded.logits[k])), slope = Sum(loaded.dy[k]);
            of_x[k] = Element(slope * gate);
            of_logits[k] = Element(slope * Sum(loaded.x[k]) * gate * (1 - gate));
        }
        store_pack<N>(dx + i, of_x);
        store_pack<N>(d_logits + i, of_logits);
    }
};

template <class Launcher>
void gate_rows(model::Device& device, const model::GateRowsArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        if (x.width == 1)
            return each_pack<kPack<Element>>(launcher, x.rows, address(x.x.data) | address(x.logits.data) | address(x.y.data),
                                             GateValues<Element>{values<Element>(x.x), values<Element>(x.logits), values<Element>(x.y)});
        each_pack<kPack<Element>>(launcher, x.rows * x.width,
                                  address(x.x.data) | address(x.y.data) | static_cast<std::uint64_t>(x.width) * sizeof(Element),
                                  GateRows<Element>{values<Element>(x.x), values<Element>(x.logits), values<Element>(x.y), x.width});
    });
}

template <class Launcher>
void gate_rows_backward(model::Device& device, const model::GateRowsBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    with_type(x.x.dtype, [&]<class Element>() {
        if (x.width == 1)
            return each_pack<kPack<Element>>(
                launcher, x.rows,
                address(x.dy.data) | address(x.x.data) | address(x.logits.data) | address(x.dx.data) | address(x.d_logits.data),
                GateValueGradient<Element>{values<Element>(x.dy), values<Element>(x.x), values<Element>(x.logits), values<Element>(x.dx),
                                           values<Element>(x.d_logits)});
        const std::uint64_t bytes =
            address(x.dy.data) | address(x.x.data) | address(x.dx.data) | static_cast<std::uint64_t>(x.width) * sizeof(Element);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            launcher.teams(x.rows, lanes_for(x.width / N),
                           GateRowGradient<Element, N>{values<Element>(x.dy), values<Element>(x.x), values<Element>(x.logits),
                                                       values<Element>(x.dx), values<Element>(x.d_logits), x.width});
        });
    });
}

}  // namespace mgplan::runtime::cuda
