#pragma once
// Costs of the kinds of layer of one shard, read from their records.

#include "simulator/layers/layer_costs.hpp"
#include "simulator/piece/piece_trace.hpp"
#include "simulator/price/op_price.hpp"

namespace mgplan::simulator {

/// Seconds of a started collective over the links of its group; sends and receives that started together run at once, each way.
[[nodiscard]] double collective_seconds(const PieceStep& start, const LayoutPaths& paths, const Calibration& calibration);

/// Time of a piece: its forward and its backward played on their streams.
[[nodiscard]] PieceCost price_piece(const PieceSteps& forward, const PieceSteps& backward, const Shard& shard);

/// As layer_costs(), but from records of model/ (`sizes`: of the shard's layout), with what engine megatron does otherwise as its policies
/// say.
[[nodiscard]] LayerCosts recorded_costs(const Shard& shard, const PieceSizes& sizes);

}  // namespace mgplan::simulator
