#pragma once
// log(1 + e^x), which makes the steps of state-space layers and the decays of delta rules positive.

#include <cmath>

namespace mgplan::runtime::cpu {

template <class Number>
Number softplus(Number x) {
    // Above 20 the logarithm is below fp32's precision, and in fp64 log1p(e^x) is as exact.
    return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

/// Its derivative.
template <class Number>
Number softplus_slope(Number x) {
    return 1 / (1 + std::exp(-x));
}

}  // namespace mgplan::runtime::cpu
