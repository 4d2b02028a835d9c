#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {

void add_sinks(model::Device& /*device*/, const model::SinksArguments& x) {
    vectorised([&] {
        with_type(x.output.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            for (std::int64_t i = 0; i < x.rows * x.heads; ++i) {
                Sum& kept = values<Sum>(x.log_sum_exp)[i];
                const Sum before = kept, sink = Sum(values<Element>(x.sinks)[i % x.heads]), most = std::max(before, sink);
                kept = most + std::log(std::exp(before - most) + std::exp(sink - most));
                const Sum factor = std::exp(before - kept);
                Element* const output = values<Element>(x.output) + i * x.width;
                for (std::int64_t j = 0; j < x.width; ++j) output[j] = Element(Sum(output[j]) * factor);
            }
        });
    });
}

void sinks_gradient(model::Device& /*device*/, const model::SinksGradientArguments& x) {
    vectorised([&] {
        with_types(x.d_output.dtype, x.gradient.dtype, [&]<class Element, class Gradient>() {
            using Sum = Compute<Element>;
            Sum* const sums = values<Sum>(x.column_sums);
            std::fill(sums, sums + x.heads, Sum{0});
            for (std::int64_t i = 0; i < x.rows * x.heads; ++i) {
                const Element* const dy = values<Element>(x.d_output) + i * x.width;
                const Element* const y = values<Element>(x.output) + i * x.width;
                const Sum share = std::exp(Sum(values<Element>(x.sinks)[i % x.heads]) - values<Sum>(x.log_sum_exp)[i]);
                sums[i % x.heads] += share * sum_over<Sum>(x.width, [&](std::int64_t j) { return Sum(dy[j]) * Sum(y[j]); });
            }
            Gradient* const gradient = values<Gradient>(x.gradient);
            for (std::int64_t i = 0; i < x.heads; ++i) gradient[i] = Gradient(Sum(gradient[i]) - sums[i]);
        });
    });
}

}  // namespace mgplan::runtime::cpu
