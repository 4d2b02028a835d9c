#pragma once
// One step of an optimizer that keeps a momentum alone, over flat arrays.

#include <cstdint>
#include <span>

#include "model/device/tensor.hpp"

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

/// Tensors that a step updates, all (n): main parameters and momentum fp32 (fp64 in fp64). The gradient is of any float type.
/// `parameter`, bf16 for fp32 or undefined, becomes the new main.
struct MomentumArrays {
    Tensor main, momentum, gradient;
    Tensor parameter{};
    bool decays = true;  ///< else hyper.weight_decay does not count
};

/// One op for any number of them, all of one device and one set of types, and few kernels: a GPU's takes dozens at a time. `factor` (1),
/// fp64 or undefined, multiplies hyper.gradient_factor; if it is NaN nothing changes (clip_factor.hpp).
void momentum_step(std::span<const MomentumArrays> all, const MomentumHyperparameters& hyper, const Tensor& factor = {});

}  // namespace mgplan::model
