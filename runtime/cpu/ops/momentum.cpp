#include <cmath>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

template <class Main, class Gradient>
void move_by_momentum(const model::MomentumArray& x, const model::MomentumHyperparameters& hyper) {
    const auto factor = static_cast<Main>(hyper.gradient_factor), rate = static_cast<Main>(hyper.learning_rate);
    const auto beta1 = static_cast<Main>(hyper.beta1), beta2 = static_cast<Main>(hyper.beta2);
    const auto rest1 = static_cast<Main>(1 - hyper.beta1), rest2 = static_cast<Main>(1 - hyper.beta2);
    const auto decay = static_cast<Main>(x.weight_decay);
    Main* const main = values<Main>(x.main);
    Main* const momentum = values<Main>(x.momentum);
    const Gradient* const gradient = values<Gradient>(x.gradient);
    if (hyper.rule == model::MomentumRule::sgd) {
        for (std::int64_t i = 0; i < x.elements; ++i) {
            const Main g = static_cast<Main>(Compute<Gradient>(gradient[i])) * factor;
            momentum[i] = beta1 * momentum[i] + (g + decay * main[i]);
            main[i] -= rate * momentum[i];
        }
        return;
    }
    for (std::int64_t i = 0; i < x.elements; ++i) {
        const Main g = static_cast<Main>(Compute<Gradient>(gradient[i])) * factor;
        const Main ahead = beta1 * momentum[i] + rest1 * g;
        const Main sign = static_cast<Main>(static_cast<int>(ahead > 0) - static_cast<int>(ahead < 0));
        momentum[i] = beta2 * momentum[i] + rest2 * g;
        main[i] -= rate * (sign + decay * main[i]);
    }
}

}  // namespace

void momentum_step(model::Device& /*device*/, const model::MomentumArguments& x) {
    auto hyper = x.hyper;
    if (x.factor.data != nullptr) {
        const double factor = *values<double>(x.factor);
        if (std::isnan(factor)) return;
        hyper.gradient_factor *= factor;
    }
    const auto move = [&](const model::MomentumArray& array) {
        with_type(array.gradient.dtype, [&]<class Gradient>() {
            if (array.main.dtype == Dtype::fp64) return move_by_momentum<double, Gradient>(array, hyper);
            return move_by_momentum<float, Gradient>(array, hyper);
        });
        if (array.parameter.data == nullptr) return;
        const float* const main = values<float>(array.main);
        Bf16* const parameter = values<Bf16>(array.parameter);
        for (std::int64_t i = 0; i < array.elements; ++i) parameter[i] = Bf16(main[i]);
    };
    for (std::int64_t i = 0; i < x.count; ++i) vectorised([&] { move(x.arrays[i]); });
}

}  // namespace mgplan::runtime::cpu
