#pragma once
// One AdamW step over flat arrays (arXiv 1711.05101).

#include "model/tensor/tensor.hpp"

namespace mgplan::model {

struct AdamHyperparameters {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0;
    std::int64_t step = 1;       ///< from 1, for the bias correction
    double gradient_factor = 1;  ///< clipping and unscaling in one
};

/// All (n): main parameters fp32 (fp64 in fp64), each kind of moments of that type or, beside fp32, 16-bit: computed in fp32
/// and rounded when stored. The gradient is of any float type. `parameter`, bf16 beside fp32 or undefined, becomes the new main.
void adam_step(const Tensor& main, const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& gradient,
               const AdamHyperparameters& hyper, const Tensor& parameter = {});

}  // namespace mgplan::model
