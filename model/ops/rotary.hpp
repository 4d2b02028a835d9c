#pragma once
// Rotary position embedding (arXiv 2104.09864), the half-split form of Llama and Megatron-LM.

#include "model/device/tensor.hpp"
#include "model/ops/positions.hpp"
#include "model/ops/qkv.hpp"

namespace mgplan::model {

/// Angles of rotation: pair i of a position p is turned by p · f', with f = base^(-2i / rotated) and f' = f · (m + (1 - m) / factor),
/// m = offset + by_index · i + by_frequency · f within [0, 1]. Linear interpolation, Llama 3's and YaRN's ramps are all of this
/// form (model/layers/rotary_scaling.hpp); by default f' = f.
struct RotaryAngles {
    double base = 10000;
    double factor = 1;
    double offset = 1, by_index = 0, by_frequency = 0;
    double magnitude = 1;  ///< factor of turned values
};

/// x (rows, heads, head_dim): the first `rotated` of each head's head_dim values are turned by their position; returns a
/// new tensor. inverse: turns the other way (and multiplies with the magnitude again), which is the backward.
[[nodiscard]] Tensor rotary(const Tensor& x, const Positions& positions, std::int64_t rotated, const RotaryAngles& angles, bool inverse);

/// In place: the same of the queries and keys in packed (rows, heads.width()), or of their gradients. At least two values are turned.
void rotary_in_place(const Tensor& packed, const PackedHeads& heads, const Positions& positions, std::int64_t rotated,
                     const RotaryAngles& angles, bool inverse);

}  // namespace mgplan::model
