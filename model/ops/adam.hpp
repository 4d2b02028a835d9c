#pragma once
// One AdamW step over flat arrays (arXiv 1711.05101).

#include <span>

#include "model/device/tensor.hpp"

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

/// Tensors that a step updates, all (n): main parameters fp32 (fp64 in fp64), each kind of moments of that type or, for fp32, 16-bit:
/// computed in fp32 and rounded when stored. The gradient is of any float type. `parameter`, bf16 for fp32 or undefined, becomes the new
/// main.
struct AdamArrays {
    Tensor main, exp_avg, exp_avg_sq, gradient;
    Tensor parameter{};
    bool decays = true;  ///< else hyper.weight_decay does not count
};

/// One op for any number of them, all of one device and one set of types, and few kernels: a GPU's takes dozens at a time. `factor` (1),
/// fp64 or undefined, multiplies hyper.gradient_factor; if it is NaN nothing changes (clip_factor.hpp).
void adam_step(std::span<const AdamArrays> all, const AdamHyperparameters& hyper, const Tensor& factor = {});

}  // namespace mgplan::model
