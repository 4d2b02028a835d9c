#pragma once
// Cost of what stands before the first and behind the last decoder layer.

#include "simulator/layers/shard.hpp"

namespace mgplan::simulator {

/// Word (and position) embedding of one microbatch.
[[nodiscard]] PieceCost embedding_cost(const Shard& shard);

/// Final norm, output projection and vocab-parallel cross-entropy of one microbatch.
[[nodiscard]] PieceCost head_cost(const Shard& shard);

}  // namespace mgplan::simulator
