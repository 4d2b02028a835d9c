#pragma once
// Cost of the attention half of a decoder layer: norm, projections, core attention, output projection, residual.

#include "simulator/layers/shard.hpp"

namespace mgplan::simulator {

[[nodiscard]] PieceCost attention_cost(const Shard& shard);

}  // namespace mgplan::simulator
