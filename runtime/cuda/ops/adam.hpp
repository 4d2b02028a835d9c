#pragma once
// See model/ops/adam.hpp; the formula is that of runtime/cpu/ops/adam.cpp.

#include "runtime/cuda/ops/arrays.hpp"

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

/// Such steps of many arrays, a team for each share of one.
template <class Main, class First, class Second, class Gradient, bool kCopies>
struct AdamOfArrays {
    static constexpr int kSize = kCopies ? kPack<Main, First, Second, Gradient, Bf16> : kPack<Main, First, Second, Gradient>;
    struct Array {
        Main* main;
        First* exp_avg;
        Second* exp_avg_sq;
        const Gradient* gradient;
        Bf16* parameter;
        std::int64_t elements;
        Main decay;
        bool aligned;
    };
    ArrayList<Array> list;
    const double* clipping;
    double gradient_factor;
    Main beta1, beta2, rest1, rest2, correction1, correction2, epsilon, rate;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t share) const {
        update_share<kSize, Main>(team, list, share, gradient_factor, clipping, [&](const Array& x, std::int64_t begin, Main factor) {
            return AdamStep<Main, First, Second, Gradient, kCopies>{x.main + begin,
                                                                    x.exp_avg + begin,
                                                                    x.exp_avg_sq + begin,
                                                                    x.gradient + begin,
                                                                    x.parameter + (kCopies ? begin : 0),
                                                                    factor,
                                                                    beta1,
                                                                    beta2,
                                                                    rest1,
                                                                    rest2,
                                                                    correction1,
                                                                    correction2,
                                                                    epsilon,
                                                                    rate,
                                                                    x.decay};
        });
    }
};

template <class Launcher>
void adam_step(model::Device& device, const model::AdamArguments& x) {
    const auto& hyper = x.hyper;
    const auto t = static_cast<double>(hyper.step);
    const auto run = [&]<bool kCopies, class Main, class First, class Second, class Gradient>() {
        using Body = AdamOfArrays<Main, First, Second, Gradient, kCopies>;
        static_assert(sizeof(Body) + sizeof(std::int64_t) <= kMostParameterBytes);
        const auto make = [&](std::int64_t i) {
            const model::AdamArray& each = x.arrays[i];
            const std::uint64_t addresses = address(each.main.data) | address(each.exp_avg.data) | address(each.exp_avg_sq.data) |
                                            address(each.gradient.data) | address(each.parameter.data);
            return typename Body::Array{values<Main>(each.main),
                                        values<First>(each.exp_avg),
                                        values<Second>(each.exp_avg_sq),
                                        values<Gradient>(each.gradient),
                                        values<Bf16>(each.parameter),
                                        each.elements,
                                        static_cast<Main>(each.weight_decay),
                                        addresses % sizeof(Word16) == 0};
        };
        each_list<typename Body::Array>(
            x.count, make, [&](std::int64_t i) { return shares_of(x.arrays[i].elements); },
            [&](const auto& list, std::int64_t shares) {
                Launcher::of(device).teams(
                    shares, 256,
                    Body{list, values<double>(x.factor), hyper.gradient_factor, static_cast<Main>(hyper.beta1),
                         static_cast<Main>(hyper.beta2), static_cast<Main>(1 - hyper.beta1), static_cast<Main>(1 - hyper.beta2),
                         static_cast<Main>(1 / (1 - std::pow(hyper.beta1, t))), static_cast<Main>(1 / (1 - std::pow(hyper.beta2, t))),
                         static_cast<Main>(hyper.epsilon), static_cast<Main>(hyper.learning_rate)});
            });
    };
    const model::AdamArray& first = x.arrays[0];
    const auto step = [&]<class Main, class First, class Second, class Gradient>() {
        if constexpr (std::is_same_v<Main, float>) {
            if (first.parameter.data != nullptr) return run.template operator()<true, Main, First, Second, Gradient>();
        }
        run.template operator()<false, Main, First, Second, Gradient>();
    };
    with_type(first.gradient.dtype, [&]<class Gradient>() {
        const bool narrow_first = first.exp_avg.dtype == Dtype::bf16, narrow_second = first.exp_avg_sq.dtype == Dtype::bf16;
        if (first.main.dtype == Dtype::fp64) return step.template operator()<double, double, double, Gradient>();
        if (narrow_first && narrow_second) return step.template operator()<float, Bf16, Bf16, Gradient>();
        if (narrow_first) return step.template operator()<float, Bf16, float, Gradient>();
        if (narrow_second) return step.template operator()<float, float, Bf16, Gradient>();
        return step.template operator()<float, float, float, Gradient>();
    });
}

}  // namespace mgplan::runtime::cuda
