#pragma once
// One step of an optimizer that keeps a momentum alone, over flat arrays.

#include <cstdint>

#include "model/tensor/tensor.hpp"

namespace mgplan::model {

enum class MomentumRule : std::uint8_t {
    /// m = β1 m + g + decay · w; w -= rate · m: torch.optim.SGD, which adds the decay to the gradient.
    sgd,
    /// w -= rate · (sign(β1 m + (1 - β1) g) + decay · w); m = β2 m + (1 - β2) g (arXiv 2302.06675).
    lion,
};

struct MomentumHyperparameters {
    MomentumRule rule = MomentumRule::sgd;
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.99;  ///< of Lion
    double weight_decay = 0;
    double gradient_factor = 1;  ///< clipping and unscaling in one
};

/// All (n): main parameters and momentum fp32 (fp64 in fp64). The gradient is of any float type.
void momentum_step(const Tensor& main, const Tensor& momentum, const Tensor& gradient, const MomentumHyperparameters& hyper);

}  // namespace mgplan::model
