#include <cmath>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

// m = β1 m + (1 - β1) g; v = β2 v + (1 - β2) g²; w -= rate · (m / (1 - β1^t) / (sqrt(v / (1 - β2^t)) + ε) + decay · w)
template <class Main, class First, class Second, class Gradient>
void step(const model::AdamArray& x, const model::AdamHyperparameters& hyper) {
    const auto t = static_cast<double>(hyper.step);
    const auto factor = static_cast<Main>(hyper.gradient_factor);
    const auto beta1 = static_cast<Main>(hyper.beta1), beta2 = static_cast<Main>(hyper.beta2);
    const auto rest1 = static_cast<Main>(1 - hyper.beta1), rest2 = static_cast<Main>(1 - hyper.beta2);
    const auto correction1 = static_cast<Main>(1 / (1 - std::pow(hyper.beta1, t)));
    const auto correction2 = static_cast<Main>(1 / (1 - std::pow(hyper.beta2, t)));
    const auto epsilon = static_cast<Main>(hyper.epsilon), rate = static_cast<Main>(hyper.learning_rate);
    const auto decay = static_cast<Main>(x.weight_decay);
    Main* const main = values<Main>(x.main);
    First* const exp_avg = values<First>(x.exp_avg);
    Second* const exp_avg_sq = values<Second>(x.exp_avg_sq);
    const Gradient* const gradient = values<Gradient>(x.gradient);
    Bf16* const parameter = values<Bf16>(x.parameter);
    for (std::int64_t i = 0; i < x.elements; ++i) {
        const Main g = static_cast<Main>(Compute<Gradient>(gradient[i])) * factor;
        const Main m = beta1 * Main(exp_avg[i]) + rest1 * g;
        const Main v = beta2 * Main(exp_avg_sq[i]) + rest2 * g * g;
        exp_avg[i] = First(m);
        exp_avg_sq[i] = Second(v);
        main[i] -= rate * (m * correction1 / (std::sqrt(v * correction2) + epsilon) + decay * main[i]);
    }
    if (parameter != nullptr) {
        for (std::int64_t i = 0; i < x.elements; ++i) parameter[i] = Bf16(static_cast<float>(main[i]));
    }
}

}  // namespace

void adam_step(model::Device& /*device*/, const model::AdamArguments& x) {
    auto hyper = x.hyper;
    if (x.factor.data != nullptr) {
        const double factor = *values<double>(x.factor);
        if (std::isnan(factor)) return;
        hyper.gradient_factor *= factor;
    }
    const auto move = [&](const model::AdamArray& array) {
        with_type(array.gradient.dtype, [&]<class Gradient>() {
            if (array.main.dtype == Dtype::fp64) return step<double, double, double, Gradient>(array, hyper);
            const bool narrow_first = array.exp_avg.dtype == Dtype::bf16, narrow_second = array.exp_avg_sq.dtype == Dtype::bf16;
            if (narrow_first && narrow_second) return step<float, Bf16, Bf16, Gradient>(array, hyper);
            if (narrow_first) return step<float, Bf16, float, Gradient>(array, hyper);
            if (narrow_second) return step<float, float, Bf16, Gradient>(array, hyper);
            return step<float, float, float, Gradient>(array, hyper);
        });
    };
    for (std::int64_t i = 0; i < x.count; ++i) vectorised([&] { move(x.arrays[i]); });
}

}  // namespace mgplan::runtime::cpu
