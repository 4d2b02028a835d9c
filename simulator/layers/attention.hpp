#pragma once
// Cost of the attention half of a decoder layer: norm, projections, core attention, output projection, residual.

#include <cstdint>

#include "simulator/layers/shard.hpp"

namespace mgplan::simulator {

/// Of a layer whose queries see the last `window` places, their own among them; 0: all before.
[[nodiscard]] PieceCost attention_cost(const Shard& shard, std::int64_t window = 0);

}  // namespace mgplan::simulator
