#pragma once
// See model/ops/adam.hpp; the formula is that of runtime/cpu/ops/adam.cpp.

#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// kCopies: the new main parameters are also written as bf16.
template <class Main, class First, class Second, class Gradient, bool kCopies>
struct AdamStep {
    Main* main;
    First* exp_avg;
    Second* exp_avg_sq;
    const Gradient* gradient;
    Bf16* parameter;
    Main factor, beta1, beta2, rest1, rest2, correction1, correction2, epsilon, rate, decay;

    template <int N>
    struct Loaded {
        Pack<Main, N> main;
        Pack<First, N> first;
        Pack<Second, N> second;
        Pack<Gradient, N> gradient;
    };
    template <int N>
    MGPLAN_BOTH Loaded<N> load(std::int64_t i) const {
        return {load_pack<N>(main + i), load_pack<N>(exp_avg + i), load_pack<N>(exp_avg_sq + i), load_pack<N>(gradient + i)};
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Loaded<N> x) const {
        for (int k = 0; k < N; ++k) {
            const Main g = static_cast<Main>(Compute<Gradient>(x.gradient[k])) * factor;
            const Main m = beta1 * Main(x.first[k]) + rest1 * g;
            const Main v = beta2 * Main(x.second[k]) + rest2 * g * g;
            x.first[k] = First(m);
            x.second[k] = Second(v);
            x.main[k] -= rate * (m * correction1 / (square_root(v * correction2) + epsilon) + decay * x.main[k]);
        }
        store_pack<N>(exp_avg + i, x.first);
        store_pack<N>(exp_avg_sq + i, x.second);
        store_pack<N>(main + i, x.main);
        if constexpr (kCopies) {
            Pack<Bf16, N> copy;
            for (int k = 0; k < N; ++k) copy[k] = Bf16(static_cast<float>(x.main[k]));
            store_pack<N>(parameter + i, copy);
        }
    }
};

template <class Launcher>
void adam_step(model::Device& device, const model::AdamArguments& x) {
    const auto& hyper = x.hyper;
    const auto t = static_cast<double>(hyper.step);
    const auto run = [&]<bool kCopies, class Main, class First, class Second, class Gradient>() {
        constexpr int kSize = kCopies ? kPack<Main, First, Second, Gradient, Bf16> : kPack<Main, First, Second, Gradient>;
        each_pack<kSize>(
            Launcher::of(device), x.elements,
            address(x.main.data) | address(x.exp_avg.data) | address(x.exp_avg_sq.data) | address(x.gradient.data) |
                address(x.parameter.data),
            AdamStep<Main, First, Second, Gradient, kCopies>{
                values<Main>(x.main), values<First>(x.exp_avg), values<Second>(x.exp_avg_sq), values<Gradient>(x.gradient),
                values<Bf16>(x.parameter), static_cast<Main>(hyper.gradient_factor), static_cast<Main>(hyper.beta1),
                static_cast<Main>(hyper.beta2), static_cast<Main>(1 - hyper.beta1), static_cast<Main>(1 - hyper.beta2),
                static_cast<Main>(1 / (1 - std::pow(hyper.beta1, t))), static_cast<Main>(1 / (1 - std::pow(hyper.beta2, t))),
                static_cast<Main>(hyper.epsilon), static_cast<Main>(hyper.learning_rate), static_cast<Main>(hyper.weight_decay)});
    };
    const auto step = [&]<class Main, class First, class Second, class Gradient>() {
        if constexpr (std::is_same_v<Main, float>) {
            if (x.parameter.data != nullptr) return run.template operator()<true, Main, First, Second, Gradient>();
        }
        run.template operator()<false, Main, First, Second, Gradient>();
    };
    with_type(x.gradient.dtype, [&]<class Gradient>() {
        const bool narrow_first = x.exp_avg.dtype == Dtype::bf16, narrow_second = x.exp_avg_sq.dtype == Dtype::bf16;
        if (x.main.dtype == Dtype::fp64) return step.template operator()<double, double, double, Gradient>();
        if (narrow_first && narrow_second) return step.template operator()<float, Bf16, Bf16, Gradient>();
        if (narrow_first) return step.template operator()<float, Bf16, float, Gradient>();
        if (narrow_second) return step.template operator()<float, float, Bf16, Gradient>();
        return step.template operator()<float, float, float, Gradient>();
    });
}

}  // namespace mgplan::runtime::cuda
