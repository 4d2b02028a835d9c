#pragma once
// A linear layer's weight as products in fp8 read it.

#include <memory>

#include "model/communicator/communicator.hpp"
#include "model/ops/fp8.hpp"

namespace mgplan::model {

/// Copies of a weight (out, in) that last a step: as it lies for the forward, transposed for the gradient of the input (Transformer Engine,
/// pytorch/module/base.py, get_weight_workspace).
struct Fp8Weight {
    Fp8Tensor values;    ///< (out, in) e4m3
    Tensor transposed;   ///< (in, out), with the same scale
    bool fresh = false;  ///< made of the weight as it is: the step's first pass does that
};

/// Undefined values, counted with the parameters: 2 bytes an element, and the scale.
[[nodiscard]] std::shared_ptr<Fp8Weight> make_fp8_weight(Device& device, std::int64_t rows, std::int64_t columns);
/// Casts the weight unless the copies are fresh. Takes no memory.
void refresh(Fp8Weight& copies, const Tensor& weight);

/// A cast: e4m3, or e5m2 for gradients of outputs. Ranks of `group` have one scale; null: this one alone.
[[nodiscard]] Fp8Tensor to_fp8(const Tensor& x, Dtype dtype, Communicator* group, std::string_view name);

}  // namespace mgplan::model
