#include <cmath>
#include <limits>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/element_types.hpp"

namespace mgplan::runtime::cpu {

void add_in_order(model::Device& /*device*/, const model::ElementwiseArguments& x) {
    double sum = 0;
    for (std::int64_t i = 0; i < x.elements; ++i) sum += values<double>(x.from)[i];
    *values<double>(x.to) = sum;
}

void clip_factor(model::Device& /*device*/, const model::ClipFactorArguments& x) {
    const double* const experts = values<double>(x.expert_squares);
    const double squares = *values<double>(x.squares) / x.replicas + (experts == nullptr ? 0 : *experts), norm = std::sqrt(squares);
    double factor = 1;
    if (x.clip_norm > 0 && norm > x.clip_norm) factor = x.clip_norm / (norm + 1e-6);
    if (!std::isfinite(squares) || !std::isfinite(*values<double>(x.guard))) factor = std::numeric_limits<double>::quiet_NaN();
    values<double>(x.outcome)[0] = squares;
    values<double>(x.outcome)[1] = factor;
}

}  // namespace mgplan::runtime::cpu
