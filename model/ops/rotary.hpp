#pragma once
// Rotary position embedding (arXiv 2104.09864), the half-split form of Llama and Megatron-LM.

#include "model/ops/positions.hpp"
#include "model/tensor/tensor.hpp"

namespace mgplan::model {

/// x (rows, heads, head_dim): the first `rotated` of each head's head_dim values are turned by their position; returns a
/// new tensor. inverse: turns back, which is the backward.
[[nodiscard]] Tensor rotary(const Tensor& x, const Positions& positions, std::int64_t rotated, double base, bool inverse);

}  // namespace mgplan::model
