#pragma once
// Steps of optimizers on one array.

#include <array>

#include "model/ops/adam.hpp"
#include "model/ops/momentum.hpp"

namespace mgplan::model {

inline void adam_step(const Tensor& main, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& gradient,
                      const AdamHyperparameters& hyper, const Tensor& parameter = {}) {
    adam_step(std::array{AdamArrays{main, exp_avg, exp_avg_sq, gradient, parameter}}, hyper);
}

inline void momentum_step(const Tensor& main, const Tensor& momentum, const Tensor& gradient, const MomentumHyperparameters& hyper,
                          const Tensor& parameter = {}) {
    momentum_step(std::array{MomentumArrays{main, momentum, gradient, parameter}}, hyper);
}

}  // namespace mgplan::model
