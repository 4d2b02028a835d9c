#pragma once
// See model/ops/momentum.hpp; the formulas are those of runtime/cpu/ops/momentum.cpp.

#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

template <class Main, class Gradient>
struct MomentumStep {
    Main* main;
    Main* momentum;
    const Gradient* gradient;
    bool lion;
    Main factor, beta1, beta2, rest1, rest2, rate, decay;

    template <int N>
    struct Loaded {
        Pack<Main, N> main;
        Pack<Main, N> momentum;
        Pack<Gradient, N> gradient;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t i) const {
        return {load_pack<N>(main + i), load_pack<N>(momentum + i), load_pack<N>(gradient + i)};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Loaded<N> x) const {
        for (int k = 0; k < N; ++k) {
            const Main g = static_cast<Main>(Compute<Gradient>(x.gradient[k])) * factor;
            if (lion) {
                const Main ahead = beta1 * x.momentum[k] + rest1 * g;
                const Main sign = static_cast<Main>(static_cast<int>(ahead > 0) - static_cast<int>(ahead < 0));
                x.momentum[k] = beta2 * x.momentum[k] + rest2 * g;
                x.main[k] -= rate * (sign + decay * x.main[k]);
            } else {
                x.momentum[k] = beta1 * x.momentum[k] + (g + decay * x.main[k]);
                x.main[k] -= rate * x.momentum[k];
            }
        }
        store_pack<N>(momentum + i, x.momentum);
        store_pack<N>(main + i, x.main);
    }
};

template <class Launcher>
void momentum_step(model::Device& device, const model::MomentumArguments& x) {
    const auto& hyper = x.hyper;
    const auto step = [&]<class Main, class Gradient>() {
        each_pack<kPack<Main, Gradient>>(
            Launcher::of(device), x.elements, address(x.main.data) | address(x.momentum.data) | address(x.gradient.data),
            MomentumStep<Main, Gradient>{values<Main>(x.main), values<Main>(x.momentum), values<Gradient>(x.gradient),
                                         hyper.rule == model::MomentumRule::lion, static_cast<Main>(hyper.gradient_factor),
                                         static_cast<Main>(hyper.beta1), static_cast<Main>(hyper.beta2), static_cast<Main>(1 - hyper.beta1),
                                         static_cast<Main>(1 - hyper.beta2), static_cast<Main>(hyper.learning_rate),
                                         static_cast<Main>(hyper.weight_decay)});
    };
    with_type(x.gradient.dtype, [&]<class Gradient>() {
        if (x.main.dtype == Dtype::fp64) return step.template operator()<double, Gradient>();
        return step.template operator()<float, Gradient>();
    });
}

}  // namespace mgplan::runtime::cuda
