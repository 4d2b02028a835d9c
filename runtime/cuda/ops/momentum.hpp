#pragma once
// See model/ops/momentum.hpp; the formulas are those of runtime/cpu/ops/momentum.cpp.

#include "runtime/cuda/ops/arrays.hpp"

namespace mgplan::runtime::cuda {

template <class Main, class Gradient>
struct MomentumStep {
    Main* main;
    Main* momentum;
    const Gradient* gradient;
    Bf16* parameter;  ///< main as bf16, or nullptr
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
        if (parameter == nullptr) return;
        Pack<Bf16, N> copy;
        for (int k = 0; k < N; ++k) copy[k] = Bf16(static_cast<float>(x.main[k]));
        store_pack<N>(parameter + i, copy);
    }
};

/// Such steps of many arrays, a team for each share of one.
template <class Main, class Gradient>
struct MomentumOfArrays {
    struct Array {
        Main* main;
        Main* momentum;
        const Gradient* gradient;
        Bf16* parameter;
        std::int64_t elements;
        Main decay;
        bool aligned;
    };
    ArrayList<Array> list;
    const double* clipping;
    double gradient_factor;
    bool lion;
    Main beta1, beta2, rest1, rest2, rate;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t share) const {
        constexpr int kSize = kPack<Main, Gradient, Bf16>;
        update_share<kSize, Main>(team, list, share, gradient_factor, clipping, [&](const Array& x, std::int64_t begin, Main factor) {
            return MomentumStep<Main, Gradient>{x.main + begin,
                                                x.momentum + begin,
                                                x.gradient + begin,
                                                x.parameter == nullptr ? nullptr : x.parameter + begin,
                                                lion,
                                                factor,
                                                beta1,
                                                beta2,
                                                rest1,
                                                rest2,
                                                rate,
                                                x.decay};
        });
    }
};

template <class Launcher>
void momentum_step(model::Device& device, const model::MomentumArguments& x) {
    const auto& hyper = x.hyper;
    const auto step = [&]<class Main, class Gradient>() {
        using Body = MomentumOfArrays<Main, Gradient>;
        static_assert(sizeof(Body) + sizeof(std::int64_t) <= kMostParameterBytes);
        const auto make = [&](std::int64_t i) {
            const model::MomentumArray& each = x.arrays[i];
            const std::uint64_t addresses =
                address(each.main.data) | address(each.momentum.data) | address(each.gradient.data) | address(each.parameter.data);
            return typename Body::Array{values<Main>(each.main),
                                        values<Main>(each.momentum),
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
                    Body{list, values<double>(x.factor), hyper.gradient_factor, hyper.rule == model::MomentumRule::lion,
                         static_cast<Main>(hyper.beta1), static_cast<Main>(hyper.beta2), static_cast<Main>(1 - hyper.beta1),
                         static_cast<Main>(1 - hyper.beta2), static_cast<Main>(hyper.learning_rate)});
            });
    };
    with_type(x.arrays[0].gradient.dtype, [&]<class Gradient>() {
        if (x.arrays[0].main.dtype == Dtype::fp64) return step.template operator()<double, Gradient>();
        return step.template operator()<float, Gradient>();
    });
}

}  // namespace mgplan::runtime::cuda
